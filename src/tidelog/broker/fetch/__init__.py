"""Everything that `apis/fetch` needs: sessions, reading partitions, waiting for records, conversion to older message formats."""
