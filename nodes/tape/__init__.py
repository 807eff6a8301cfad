"""Recordings of requests, replies and verdicts, and chats that are played from them."""
