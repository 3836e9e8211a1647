"""Rates and buckets of tokens: the numbers that Kafka's have, worked out by hand."""

from __future__ import annotations

from tidelog.broker.quotas.quota_rate import QuotaRate, TokenBucket


def test_a_burst_waits_until_the_rate_is_down() -> None:
    rate = QuotaRate(11, 1000)
    rate.record(5_000, 0)
    assert rate.rate(0) == 500 and rate.throttle_ms(500, 0) == 0, "ten seconds' worth at once"
    rate.record(1_000, 500)
    assert rate.window_ms(500) == 10_500
    assert rate.throttle_ms(500, 500) == round((6_000 / 10.5 - 500) / 500 * 10_500) == 1_500
    assert rate.throttle_ms(500, 2_000) == 2_000, "the time it is over is ten seconds again"
    assert rate.throttle_ms(500, 11_500) == 0
    assert not rate.is_idle(11_499) and rate.is_idle(11_500)
    assert rate.rate(20_000) == 0


def test_what_was_taken_back_does_not_count() -> None:
    rate = QuotaRate(11, 1000)
    rate.record(100_000, 0)
    rate.record(-100_000, 0)
    assert rate.throttle_ms(1, 0) == 0
    rate.record(1, 0)
    assert rate.throttle_ms(0, 0) > 2**30, "a limit of nothing is no division by it"


def test_the_time_that_a_rate_is_over() -> None:
    rate = QuotaRate(11, 1000)
    for now_ms, over_ms in ((0, 10_000), (999, 10_999), (1_000, 10_000), (5_500, 10_500), (10_500, 10_500), (11_400, 11_400)):
        rate.record(1, now_ms)
        assert rate.window_ms(now_ms) == over_ms, now_ms
    # The first window's last value is eleven seconds old: what it counted is gone, and the second is the oldest.
    assert rate.window_ms(11_999) == 10_999 and rate.rate(11_999) == 4 / 10.999
    # A ring has one sample more than there are windows; they are used again.
    for now_ms in range(12_000, 60_000, 500):
        rate.record(10, now_ms)
        assert 10_000 <= rate.window_ms(now_ms) <= 11_500
    assert rate.rate(59_500) == 10 * 22 / 10.5


def test_after_a_pause_what_was_not_used_may_be_used() -> None:
    rate = QuotaRate(2, 1000)
    rate.record(100, 0)
    rate.record(100, 1_500)
    assert rate.window_ms(3_000) == 1_500, "the first is nothing now, and began at 3000: the second began at 1500"
    assert rate.rate(3_000) == 100 / 1.5
    assert rate.window_ms(3_500) == 1_500, "both are nothing now"
    assert rate.rate(3_500) == 0 and rate.is_idle(3_500)


def test_tokens() -> None:
    bucket = TokenBucket(11, 1000)
    assert bucket.is_full(5, 0)
    bucket.record(60, 5, 0)
    assert bucket.tokens(5, 0) == -5 and bucket.throttle_ms(5, 0) == 1_000
    assert bucket.throttle_ms(5, 500) == 500 and bucket.throttle_ms(5, 1_000) == 0
    assert not bucket.is_full(5, 11_999) and bucket.is_full(5, 12_000)
    bucket.record(-100, 5, 12_000)
    assert bucket.tokens(5, 12_000) == 55
