"""Frameworks: each turns a member's task into processes, by the worker contract."""
