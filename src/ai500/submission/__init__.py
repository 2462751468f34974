"""Submissions: archive, packing, signing, verification, rerun."""
