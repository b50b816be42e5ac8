"""A small shop: orders, and the work that each one starts.

What it shows: an order and its jobs are committed together, or not at all; a payment that fails is tried again; many
small calls are done at once; a report comes every few seconds.

`tidemill up --demo` runs it. To run it by yourself, in two terminals:

    cd examples && TIDEMILL_MODULES=shop.tasks tidemill up
    cd examples && python -m shop.produce
"""
