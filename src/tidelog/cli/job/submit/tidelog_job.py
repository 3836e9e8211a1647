"""`tidelog job` as a program for spark-submit: with the same arguments, and spark-submit's session.

spark-submit --master spark://host:7077 $(tidelog job --submit-script) verify /backup/kafka
"""

from __future__ import annotations

import sys

from tidelog.cli import main

if __name__ == "__main__":
    sys.argv = ["tidelog", "job", *sys.argv[1:]]
    main()
