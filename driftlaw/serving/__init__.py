"""Serving: an HTTP server around adapters and its client, and predictions while images arrive in a folder or a video.

This package imports nothing by itself, so that the client needs neither torch nor the extra ``serve``.
"""
