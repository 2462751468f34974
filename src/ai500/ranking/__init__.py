"""The list: valid submissions ranked by VFLOPS, as a static web site (V2 Fig. 14)."""
