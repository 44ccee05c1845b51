"""The placer turns plans into starts, stops and moves on nodes, and reconciles until the nodes agree."""
