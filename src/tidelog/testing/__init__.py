"""For tests of programs that use Kafka: a broker as a pytest fixture, and a clock that moves when told to."""
