"""Orders that are fulfilled step by step: each is a process, begun in the transaction that inserts the order.

What it shows: steps that wait for each other, and several at once; a payment that is refused, which is a result and no
breakdown; a person's approval, for which nobody waits for ever; a courier that often fails, and one that is out for
good, so that what was done is taken back; a step that is done some time later. Every effect has a key that it keeps
however often the step is tried. `orders.proof` looks whether each order is as it should be, and each effect there once.

`tidemill up --demo` runs it. To run it by yourself, in two terminals:

    cd examples && TIDEMILL_MODULES=orders.fulfil tidemill up
    cd examples && python -m orders.customers
"""
