"""Hadar (IPDPS '24): payoffs against dual prices, gangs that may mix GPU types, a dynamic program a round."""
