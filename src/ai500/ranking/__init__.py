"""The list: valid submissions ranked by VFLOPS, as a static web site (SPEC §5, V2 Fig. 14)."""
