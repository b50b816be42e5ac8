"""Sends one statement to the database of the demo, as a program would that has never heard of Tidemill:

python examples/sql.py "select seller, count(*) from classifieds_offer group by 1"
"""

from __future__ import annotations

import sys

from tidemill import transaction


def main() -> None:
    with transaction() as session:
        found = session.connection().exec_driver_sql(" ".join(sys.argv[1:]))
        if found.returns_rows:
            for row in found:
                print(*row)
        else:
            print("done")


if __name__ == "__main__":
    main()
