"""Experiments: grids of runs, what they come to over several seeds, and reports of it.

`trials` says what a run is, `runs` makes them in processes of their own and keeps what they leave;
`statistics`, `measures` and `paper` turn outcomes into figures; `figures`, `report` and `tidy` show them.
One module an experiment, one line each in `suite`.
"""
