"""The TalkNet folder layout: its ``tables``, what ``checks`` find in it, and the ``dataset`` that reads it in place."""
