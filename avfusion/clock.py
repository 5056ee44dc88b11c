"""The one clock of picture and sound.

Video frame ``i`` stands at ``i / VIDEO_HZ`` seconds, audio (log-mel) frame ``j`` is centred on ``j / AUDIO_HZ``
seconds: video frame ``i`` and audio frame ``4 i`` share an instant. Every prepared clip of ``T`` video frames has
``640 T`` sound samples and ``4 T`` audio frames.
"""

VIDEO_HZ = 25
FRAME_MS = 1000 // VIDEO_HZ  # 40
AUDIO_HZ = 100
SAMPLE_RATE = 16_000
SAMPLES_PER_VIDEO_FRAME = SAMPLE_RATE // VIDEO_HZ  # 640
SAMPLES_PER_AUDIO_FRAME = SAMPLE_RATE // AUDIO_HZ  # 160
AUDIO_FRAMES_PER_VIDEO_FRAME = AUDIO_HZ // VIDEO_HZ  # 4
