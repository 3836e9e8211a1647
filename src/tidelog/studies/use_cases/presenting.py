from tidelog.studies.case import Measurements
from tidelog.studies.chapter import Chapter


def present(measurements: Measurements) -> Chapter:
    raise NotImplementedError
