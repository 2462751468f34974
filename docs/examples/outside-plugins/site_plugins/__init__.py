"""Plugins of ai500, one file a kind."""
