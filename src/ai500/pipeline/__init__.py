"""The stages of a run in order, and the records they leave."""
