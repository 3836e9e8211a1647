"""KIP-33's table of use cases with measured cells, and whether the numbers support its conclusion."""

from __future__ import annotations

from studies.case import Measurements
from studies.chapter import Cell, Claim, Table, Verdict
from studies.use_cases import bootstrap, failover, lag, latency_metric, searching
from studies.use_cases.clusters import CREATE_TIME, LOG_APPEND_TIME, SKEWS, TRUE_CLOCKS, TYPES
from studies.workload import SECOND_MS

TRUE = TRUE_CLOCKS.name
WRONG = tuple(skew.name for skew in SKEWS if skew is not TRUE_CLOCKS)


class _Read:
    """The measured numbers, under the names that the claims use."""

    def __init__(self, found: Measurements) -> None:
        self.found = found

    def search(self, case: str, subject: str, metric: str) -> int:
        return int(self.found.value(searching.SEARCH, case, subject, metric))

    def nothing_a_search(self, case: str, subject: str) -> float:
        return self.search(case, subject, "read for nothing") / self.search(case, subject, "searches")

    def failover(self, case: str, topic: str, strategy: str, metric: str) -> int:
        return int(self.found.value(failover.FAILOVER, case, f"{topic}: {strategy}", metric))

    def twice_a_crash(self, case: str, topic: str, strategy: str) -> float:
        return self.failover(case, topic, strategy, "read twice") / self.failover(case, topic, strategy, "crashes")

    def bootstrap(self, case: str, subject: str, metric: str) -> int:
        return int(self.found.value(bootstrap.BOOTSTRAP, case, subject, metric))

    def m1_is_missed(self, topic: str, looked_for: str, reading: int = 0) -> bool:
        name = list(failover.READINGS)[reading]
        return self.found.value(failover.DOCUMENTS_CASE, TRUE, f"{topic}: {looked_for}", f"m1 missed, {name}") > 0

    def lag_error(self, case: str, subject: str, metric: str = "lag, largest error") -> float:
        return self.found.value(lag.LAG, case, subject, metric)

    def metric(self, case: str, subject: str, metric: str) -> float:
        return self.found.value(latency_metric.LATENCY_METRIC, case, subject, metric)


def _if(holds: bool, otherwise: Verdict = Verdict.REFUTED) -> Verdict:
    return Verdict.CONFIRMED if holds else otherwise


def kip_table(found: Measurements) -> tuple[Table, tuple[str, ...]]:
    """Return KIP-33's table, and one sentence for each contradiction."""
    read = _Read(found)
    rows = (*_search(read), *_bootstrap(read), *_failover(read), *_lag(read), *_latency(read))
    rows += (("", "All five", "", *_overall(read)),)
    table = Table(
        "use-cases-kip",
        "KIP-33's use cases: claimed and measured",
        ("", "Use case", "Goal", "Index based on LogAppendTime", "Index based on CreateTime", "Comparison"),
        rows,
        source="KIP-33, Use case discussion",
        notes=("Numbers are sums over all searches or crashes of a case, unless they say otherwise.",),
    )
    return table, _findings(read)


def _search(read: _Read) -> list[tuple[Cell, ...]]:
    by_ct, by_lat = searching.BY_CREATE_TIME, searching.BY_APPEND_TIME
    less, own = searching.BY_APPEND_TIME_LESS_SKEW, searching.FOR_APPEND_TIME
    lost = {case: read.search(case, by_lat, "missed") for case in (TRUE, *WRONG)}
    lost_less = sum(read.search(case, less, "missed") for case in (TRUE, *WRONG))
    ct_lost = sum(read.search(case, by_ct, "missed") for case in (TRUE, *WRONG))
    own_lost = sum(read.search(case, own, "missed") + read.search(case, own, "read for nothing") for case in (TRUE, *WRONG))
    again = searching.ONE_CREATE_TIME
    distance = read.found.subjects(again, TRUE)[-1]
    reads = {metric: int(read.found.value(again, TRUE, distance, metric)) for metric in ("CreateTime index, CreateTime",)}
    for metric in ("LogAppendTime index, CreateTime", "LogAppendTime index, append time"):
        reads[metric] = int(read.found.value(again, TRUE, distance, metric))
    seconds = int(distance) / SECOND_MS
    return [
        (
            "1",
            "Search by timestamp",
            "Not lose messages",
            Claim(
                "searching with CreateTime loses nothing, as long as no clock is wrong",
                f"{lost[TRUE]} missed; {read.nothing_a_search(TRUE, by_lat):.1f} read for nothing a search",
                _if(lost[TRUE] == 0),
            ),
            Claim(
                "searching with CreateTime gives a precise offset",
                f"{ct_lost} missed, with wrong clocks too; but {read.nothing_a_search(TRUE, by_ct):.1f} earlier "
                "messages behind the "
                f"offset a search, {read.nothing_a_search('producers ahead', by_ct):.0f} with some producers' clocks ahead",
                Verdict.PARTLY if ct_lost == 0 else Verdict.REFUTED,
            ),
            Claim(
                f"after m2, a search for its CreateTime reads from m1 on: the more, the longer m2 took (here {seconds:,.0f} s)",
                f"{reads['CreateTime index, CreateTime']} messages on CreateTime, {reads['LogAppendTime index, CreateTime']} on "
                f"LogAppendTime; {reads['LogAppendTime index, append time']} when searching for m2's append time",
                _if(reads["CreateTime index, CreateTime"] > 1),
            ),
        ),
        (
            "1",
            "Search by timestamp, wrong clocks",
            "Not lose messages",
            Claim(
                "with wrong clocks, search with CreateTime less the largest skew X",
                f"without X: {', '.join(f'{case} {lost[case]} missed' for case in WRONG)}; with X {lost_less} missed in all, "
                f"{read.nothing_a_search(TRUE, less):.0f} read for nothing a search",
                _if(lost_less == 0),
            ),
            "",
            "",
        ),
        (
            "1",
            "Search by append time",
            "Not lose messages",
            Claim(
                "searching with an append time is exact to the millisecond",
                f"{own_lost} missed or read for nothing, whatever the clocks",
                _if(own_lost == 0),
            ),
            "",
            "",
        ),
    ]


def _bootstrap(read: _Read) -> list[tuple[Cell, ...]]:
    by_time, by_key = bootstrap.ORDERS
    now, later = bootstrap.MOMENTS

    def for_nothing(order: str, subject: str, moment: str = now) -> int:
        return read.bootstrap(order, subject, f"read for nothing {moment}")

    missed = {
        subject: sum(
            read.bootstrap(order, subject, f"missed {moment}") for order in bootstrap.ORDERS for moment in bootstrap.MOMENTS
        )
        for subject in bootstrap.SUBJECTS
    }
    older = read.bootstrap(by_time, LOG_APPEND_TIME, f"in the log {now}") - read.bootstrap(
        by_time, LOG_APPEND_TIME, f"wanted {now}"
    )
    return [
        (
            "2",
            "Search by timestamp (bootstrap)",
            "Not lose messages, read few for nothing",
            Claim(
                "all append times lie together, so the index does not help; older rows must be left out of the dump",
                f"{missed[LOG_APPEND_TIME]} missed; {for_nothing(by_time, LOG_APPEND_TIME):,} of {older:,} older rows read; "
                f"left out of the dump: {for_nothing(by_time, bootstrap.FILTERED)}, a day later "
                f"{for_nothing(by_time, bootstrap.FILTERED, later)}",
                _if(for_nothing(by_time, LOG_APPEND_TIME) == older and for_nothing(by_time, bootstrap.FILTERED) == 0),
            ),
            Claim(
                "CreateTime does not change, so searching works",
                f"{missed[CREATE_TIME]} missed; read for nothing: {for_nothing(by_time, CREATE_TIME):,} if "
                "dumped in the order of time, "
                f"{for_nothing(by_key, CREATE_TIME):,} if dumped by key",
                _if(
                    missed[CREATE_TIME] == 0 and for_nothing(by_key, CREATE_TIME) < older // 10,
                    Verdict.PARTLY if missed[CREATE_TIME] == 0 else Verdict.REFUTED,
                ),
            ),
            Claim(
                "LogAppendTime asks for more care",
                f"of {older:,} older rows {for_nothing(by_time, LOG_APPEND_TIME):,} against "
                f"{for_nothing(by_time, CREATE_TIME):,} "
                f"by time, {for_nothing(by_key, LOG_APPEND_TIME):,} against {for_nothing(by_key, CREATE_TIME):,} by key",
                Verdict.PARTLY
                if for_nothing(by_key, CREATE_TIME) > older // 2
                else _if(for_nothing(by_time, LOG_APPEND_TIME) > for_nothing(by_time, CREATE_TIME)),
            ),
        )
    ]


def _failover(read: _Read) -> list[tuple[Cell, ...]]:
    plain = {
        (topic, strategy): read.failover(TRUE, topic, strategy, "missed")
        for topic in TYPES
        for strategy in (failover.CRASH_TIME, failover.OWN_CREATE_TIME)
    }
    by_append = read.failover(TRUE, LOG_APPEND_TIME, failover.APPEND_TIME, "missed")
    less = {topic: {case: read.failover(case, topic, failover.LESS_SEEN, "missed") for case in (TRUE, *WRONG)} for topic in TYPES}
    wrong = {topic: sum(less[topic][case] for case in WRONG) for topic in TYPES}
    kept = {topic: read.twice_a_crash(TRUE, topic, failover.LESS_SEEN) for topic in TYPES}
    meant = read.m1_is_missed(CREATE_TIME, "CT2")
    written = read.m1_is_missed(CREATE_TIME, "CT2", 1)
    by_left = read.m1_is_missed(CREATE_TIME, failover.BY_LATENCY_OF_2)
    by_seen = read.m1_is_missed(CREATE_TIME, failover.BY_LATENCY_SEEN_ON_2)
    by_other = read.m1_is_missed(CREATE_TIME, failover.BY_LATENCY_OF_1)

    def told(topic: str) -> str:
        return ", ".join(f"{case.replace('broker', 'cluster 2')} {less[topic][case]}" for case in WRONG)

    return [
        (
            "3",
            "Failover from cluster 1 to cluster 2",
            "Not lose messages, read few twice",
            Claim(
                "one may search on cluster 2 with CreateTime or with cluster 1's append time; neither alone is "
                "sure to lose nothing",
                f"missed: {plain[LOG_APPEND_TIME, failover.OWN_CREATE_TIME]} with CreateTime, {by_append} with append time, "
                f"{plain[LOG_APPEND_TIME, failover.CRASH_TIME]} with the time of the crash",
                _if(plain[LOG_APPEND_TIME, failover.OWN_CREATE_TIME] > 0 and by_append > 0),
            ),
            Claim(
                "searching with CreateTime gives a precise offset, tricky cases aside; some are still read twice",
                f"{plain[CREATE_TIME, failover.OWN_CREATE_TIME]} missed, in "
                f"{read.failover(TRUE, CREATE_TIME, failover.OWN_CREATE_TIME, 'crashes that miss')} of "
                f"{read.failover(TRUE, CREATE_TIME, failover.OWN_CREATE_TIME, 'crashes')} crashes; "
                f"{read.twice_a_crash(TRUE, CREATE_TIME, failover.OWN_CREATE_TIME):.1f} read twice a crash",
                _if(plain[CREATE_TIME, failover.OWN_CREATE_TIME] == 0),
            ),
            "",
        ),
        (
            "3",
            "Failover, less the largest latency",
            "Not lose messages, read few twice",
            Claim(
                "CreateTime less the largest latency surely loses nothing, and reads some twice",
                f"true clocks: {less[LOG_APPEND_TIME][TRUE]} missed, {kept[LOG_APPEND_TIME]:.0f} read twice a "
                "crash; missed with wrong "
                f"clocks: {told(LOG_APPEND_TIME)}",
                _if(less[LOG_APPEND_TIME][TRUE] + wrong[LOG_APPEND_TIME] == 0, _partly(less[LOG_APPEND_TIME][TRUE] == 0)),
            ),
            Claim(
                "the same trick is needed",
                f"true clocks: {less[CREATE_TIME][TRUE]} missed, {kept[CREATE_TIME]:.0f} read twice a crash; "
                "missed with wrong clocks: "
                f"{told(CREATE_TIME)}",
                _if(less[CREATE_TIME][TRUE] == 0 and plain[CREATE_TIME, failover.OWN_CREATE_TIME] > 0),
            ),
            Claim(
                "both lose nothing, and both have to know the largest latency",
                f"true clocks: both {less[LOG_APPEND_TIME][TRUE] + less[CREATE_TIME][TRUE]} missed; wrong clocks: "
                f"{wrong[LOG_APPEND_TIME]} missed on LogAppendTime, {wrong[CREATE_TIME]} on CreateTime",
                _if(
                    sum(sum(one.values()) for one in less.values()) == 0,
                    _partly(less[LOG_APPEND_TIME][TRUE] + less[CREATE_TIME][TRUE] == 0),
                ),
            ),
        ),
        (
            "3",
            "Failover, m1 and m2",
            "Not lose messages",
            "",
            Claim(
                "who read m2 on cluster 2 and searches cluster 1 with CT2 misses m1; CT2 less the largest latency finds it",
                f"CT2: m1 {_missed(meant)} as the case is meant, {_missed(written)} under what is written; less "
                "the largest latency: "
                f"{_missed(by_other)} with cluster 1's, {_missed(by_seen)} with what cluster 2 has shown until "
                f"then, {_missed(by_left)} "
                "with cluster 2's, m1's own included",
                _if(meant and not by_left and not by_seen and not by_other and written, _partly(meant and not by_left)),
            ),
            "",
        ),
    ]


def _lag(read: _Read) -> list[tuple[Cell, ...]]:
    by_lat, by_ct = f"{LOG_APPEND_TIME}: {lag.NOW}", f"{CREATE_TIME}: {lag.NOW}"
    exact = read.lag_error(TRUE, by_lat)
    created = read.lag_error(TRUE, by_ct)
    mean = read.lag_error(TRUE, by_ct, "lag, mean error")
    metric = "time to the end, median error"
    ends = {one: read.found.get(lag.LAG, TRUE, one, metric) for one in (LOG_APPEND_TIME, CREATE_TIME, lag.OFFSETS)}
    shares = {one: "not estimated" if got is None or got.value is None else f"{got.value:.0%} off" for one, got in ends.items()}
    return [
        (
            "4",
            "Get lag for consumers by time",
            "Know how far behind a consumer is",
            Claim(
                "the lag is easy to tell, and with it how long it takes to the log's end",
                f"lag {exact:.0f} ms off at most, {read.lag_error('broker behind', by_lat) / SECOND_MS:.0f} s "
                "with the broker's clock "
                f"behind; time to the end {shares[LOG_APPEND_TIME]} (median), {shares[lag.OFFSETS]} from offsets",
                _if(exact == 0),
            ),
            Claim(
                "not supported",
                f"lag {mean:.0f} ms off on average, {created / SECOND_MS:,.1f} s at most: the latency of the message read last; "
                f"{read.lag_error('producers ahead', by_ct) / SECOND_MS:,.0f} s with some producers' clocks "
                "ahead; time to the end "
                f"{shares[CREATE_TIME]} (median)",
                Verdict.PARTLY if created > 0 else Verdict.REFUTED,
            ),
            "",
        )
    ]


def _latency(read: _Read) -> list[tuple[Cell, ...]]:
    kept, clock, truth = latency_metric.BY_APPEND_TIME, latency_metric.BY_CLOCK, latency_metric.TRUTH
    differ = {case: int(read.metric(case, "both", "messages that differ")) for case in latency_metric.CASES}
    steady = sum(differ[case] for case in (TRUE, *WRONG))
    largest = {case: read.metric(case, kept, "max") / SECOND_MS for case in (TRUE, *WRONG)}
    off = read.metric(TRUE, kept, "max") == read.metric(TRUE, truth, "max")
    off_clock = read.metric(TRUE, clock, "max") == read.metric(TRUE, truth, "max")
    return [
        (
            "5",
            "Broker side latency metric",
            "Let the broker report the latency of a topic",
            Claim(
                "LogAppendTime - CreateTime",
                f"largest {largest[TRUE]:.1f} s, true {read.metric(TRUE, truth, 'max') / SECOND_MS:.1f} s; from "
                "the log at any time",
                _if(off),
            ),
            Claim(
                "the broker's clock - CreateTime",
                f"largest {read.metric(TRUE, clock, 'max') / SECOND_MS:.1f} s; at the append only, the log does "
                "not tell it later",
                _if(off_clock),
            ),
            Claim(
                "both are the same, and give the largest latency that case 3 needs",
                f"{steady} messages differ, also with wrong clocks; {differ[latency_metric.SET_BACK]} if the "
                "clock is set back and append "
                f"times do not follow, {differ[latency_metric.SET_BACK_AS_KAFKA]} if they do. With wrong clocks the largest is "
                + ", ".join(f"{largest[case]:,.0f} s ({case})" for case in WRONG)
                + f" instead of {largest[TRUE]:,.0f} s",
                _if(
                    sum(differ.values()) == 0 and all(value >= largest[TRUE] for value in largest.values()),
                    _partly(steady == 0),
                ),
            ),
        )
    ]


def _overall(read: _Read) -> tuple[Cell, Cell, Cell]:
    ct, lat = _score(read, CREATE_TIME), _score(read, LOG_APPEND_TIME)
    return (
        "",
        "",
        Claim(
            "on the whole an index on LogAppendTime is better",
            f"messages missed: search {lat[0]:,} on LogAppendTime, {ct[0]:,} on CreateTime; failover less the "
            f"latency {lat[1]} and {ct[1]}; "
            f"bootstrap, read for nothing: {lat[2]:,} and {ct[2]:,}; lag: {lat[3]:.1f} s and {ct[3]:.1f} s off at most",
            Verdict.PARTLY if _is_divided(ct, lat) else _if(lat[0] + lat[1] <= ct[0] + ct[1]),
        ),
    )


def _score(read: _Read, topic: str) -> tuple[int, int, int, float]:
    """Return the messages missed by searches and failovers, those read needlessly at bootstrap, and the lag's largest error
    (s).
    """
    subject = searching.BY_CREATE_TIME if topic == CREATE_TIME else searching.BY_APPEND_TIME
    return (
        sum(read.search(case, subject, "missed") for case in (TRUE, *WRONG)),
        sum(read.failover(case, topic, failover.LESS_SEEN, "missed") for case in (TRUE, *WRONG)),
        sum(read.bootstrap(order, topic, f"read for nothing {bootstrap.MOMENTS[0]}") for order in bootstrap.ORDERS),
        read.lag_error(TRUE, f"{topic}: {lag.NOW}") / SECOND_MS,
    )


def conclusion(found: Measurements) -> str:
    """Return the conclusion from the numbers, in a paragraph."""
    read = _Read(found)
    ct, lat = _score(read, CREATE_TIME), _score(read, LOG_APPEND_TIME)
    right = [
        sum(read.search(TRUE, one, "missed") for one in (searching.BY_CREATE_TIME, searching.BY_APPEND_TIME)),
        sum(read.failover(TRUE, topic, failover.LESS_SEEN, "missed") for topic in TYPES),
    ]
    by_time = [read.bootstrap(bootstrap.ORDERS[0], topic, f"read for nothing {bootstrap.MOMENTS[0]}") for topic in TYPES]
    told = (
        f"With right clocks a search by CreateTime missed {right[0]} messages on both types together, and a failover that goes "
        f"back by the largest latency {right[1]}. Over all wrong clocks the search missed {lat[0]:,} on "
        f"LogAppendTime and {ct[0]:,} "
        f"on CreateTime, the failover {lat[1]} and {ct[1]}. For the last three days of a dump LogAppendTime "
        f"read {lat[2]:,} messages "
        f"for nothing and CreateTime {ct[2]:,}, {by_time[0]:,} of them where the dump was in the order of time. "
        "A consumer's lag was "
        f"{lat[3]:.1f} s off at most by LogAppendTime and {ct[3]:.1f} s by CreateTime."
    )
    if not _is_divided(ct, lat):
        return told
    return (
        f"{told} So neither type is the better one: LogAppendTime tells where a reader stands in the log, CreateTime finds what "
        "happened when, also when a clock is wrong."
    )


def _is_divided(ct: tuple[int, int, int, float], lat: tuple[int, int, int, float]) -> bool:
    """Return whether LogAppendTime is better for the lag, and CreateTime for finding everything."""
    return lat[3] < ct[3] and lat[0] + lat[1] > ct[0] + ct[1]


def _findings(read: _Read) -> tuple[str, ...]:
    by_key = bootstrap.ORDERS[1]
    now = bootstrap.MOMENTS[0]
    found = []
    if read.bootstrap(by_key, CREATE_TIME, f"read for nothing {now}") > 0:
        found.append(
            "A search by CreateTime in a dump that is not in the order of time starts near its beginning: "
            f"{read.bootstrap(by_key, CREATE_TIME, f'read for nothing {now}'):,} older rows were read, against "
            f"{read.bootstrap(by_key, LOG_APPEND_TIME, f'read for nothing {now}'):,} on LogAppendTime. An exact "
            "scan of the time range has none."
        )
    if read.m1_is_missed(CREATE_TIME, failover.BY_LATENCY_SEEN_ON_2):
        found.append(
            "In the document's case of m1 and m2 it is the latency of the cluster that is left that must be "
            "subtracted, and m1's own, "
            "which that cluster's metric cannot know before m1 arrives."
        )
    if not read.m1_is_missed(CREATE_TIME, "CT2", 1):
        found.append(
            "The case's conditions as they are written do not imply that m1 is missed: they leave the order on cluster 1 open."
        )
    wrong_lat = sum(read.failover(case, LOG_APPEND_TIME, failover.LESS_SEEN, "missed") for case in WRONG)
    if wrong_lat:
        found.append(
            f"CreateTime less the largest latency is no strong guarantee on LogAppendTime: {wrong_lat} missed with wrong clocks."
        )
    lowest = min(read.metric(case, latency_metric.BY_APPEND_TIME, "max") for case in WRONG)
    if lowest < 0:
        found.append(
            f"A broker's clock that is behind makes the largest latency of its metric negative ({lowest / SECOND_MS:,.0f} s): "
            "subtracting that moves a search forward."
        )
    return tuple(found)


def _partly(holds: bool) -> Verdict:
    return Verdict.PARTLY if holds else Verdict.REFUTED


def _missed(is_missed: bool) -> str:
    return "missed" if is_missed else "read"
