"""Who speaks when: scores of face tracks to stretches of speech, RTTM files, and their error rates."""
