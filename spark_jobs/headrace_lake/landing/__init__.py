"""Lands one batch: `landing` decides, `on_spark` carries out its `plan`, `left_out` lists what does not land. Records come from
the query of `job`; `rows.decode` makes them rows, `tables.fence` and `tables.append` commit these.
"""
