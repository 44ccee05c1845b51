"""HadarE's experiments (arXiv 2503.10918, section VI): two clusters, seven mixes, slots of 90 to 720 s."""
