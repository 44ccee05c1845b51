"""AlloX (EuroSys '20): jobs are matched to unlike machines, and to positions in their lists."""
