"""Properties of Apache Kafka that a broker's file may contain although they have no effect here.

Some have an effect on a cluster member, or on a broker with TLS or SASL: `server_properties` checks that first. The properties
concern replication, the controller, ZooKeeper, groups and transactions, tiered storage, TLS and SASL, threads and metrics
reporters. The names are those of releases 2.4.1 and 3.9.1.
"""

from __future__ import annotations

import re

_NAMES = """
alter.config.policy.class.name alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
auto.include.jmx.reporter auto.leader.rebalance.enable background.threads broker.heartbeat.interval.ms
broker.id.generation.enable broker.session.timeout.ms client.quota.callback.class connection.failed.authentication.delay.ms
connections.max.reauth.ms control.plane.listener.name controlled.shutdown.enable controlled.shutdown.max.retries
controlled.shutdown.retry.backoff.ms controller.quorum.append.linger.ms controller.quorum.bootstrap.servers
controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms controller.quorum.fetch.timeout.ms
controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters controller.socket.timeout.ms
create.topic.policy.class.name delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
delegation.token.master.key delegation.token.max.lifetime.ms delegation.token.secret.key
delete.records.purgatory.purge.interval.requests early.start.listeners eligible.leader.replicas.enable
fetch.purgatory.purge.interval.requests group.coordinator.append.linger.ms
group.coordinator.new.enable group.coordinator.threads group.share.delivery.count.limit group.share.enable
group.share.heartbeat.interval.ms group.share.max.groups group.share.max.heartbeat.interval.ms
group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.size
group.share.min.heartbeat.interval.ms group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
group.share.partition.max.record.locks group.share.record.lock.duration.ms group.share.session.timeout.ms
initial.broker.registration.timeout.ms inter.broker.listener.name inter.broker.protocol.version
kafka.metrics.polling.interval.secs kafka.metrics.reporters leader.imbalance.check.interval.seconds
leader.imbalance.per.broker.percentage log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
log.cleaner.io.max.bytes.per.second log.cleaner.threads log.dir.failure.timeout.ms max.request.partition.size.limit
metadata.log.dir metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
metadata.log.segment.bytes metadata.log.segment.min.bytes metadata.log.segment.ms metadata.max.idle.interval.ms
metadata.max.retention.bytes metadata.max.retention.ms metric.reporters metrics.num.samples metrics.recording.level
metrics.sample.window.ms num.io.threads num.network.threads num.replica.alter.log.dirs.threads num.replica.fetchers
offsets.commit.required.acks offsets.load.buffer.size password.encoder.cipher.algorithm password.encoder.iterations
password.encoder.key.length password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret
principal.builder.class process.roles producer.id.expiration.check.interval.ms producer.purgatory.purge.interval.requests
queued.max.requests quota.consumer.default quota.producer.default remote.fetch.max.wait.ms
remote.log.index.file.cache.total.size.bytes remote.log.manager.copier.thread.pool.size
remote.log.manager.copy.max.bytes.per.second remote.log.manager.copy.quota.window.num
remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size
remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num
remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.task.interval.ms
remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter
remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
remote.log.reader.max.pending.tasks remote.log.reader.threads remote.log.storage.manager.class.name
remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes replica.fetch.response.max.bytes
replica.fetch.wait.max.ms replica.lag.time.max.ms replica.selector.class replica.socket.receive.buffer.bytes
replica.socket.timeout.ms replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms
reserved.broker.max.id sasl.client.callback.handler.class sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.mechanism.controller.protocol sasl.mechanism.inter.broker.protocol sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url sasl.server.callback.handler.class sasl.server.max.receive.size
security.inter.broker.protocol security.providers server.max.startup.time.ms socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites ssl.client.auth
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
ssl.principal.mapping.rules ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type telemetry.max.bytes
transaction.state.log.load.buffer.size unclean.leader.election.interval.ms unstable.api.versions.enable
unstable.feature.versions.enable zookeeper.clientCnxnSocket zookeeper.connect zookeeper.connection.timeout.ms
zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable zookeeper.metadata.migration.min.batch.size
zookeeper.session.timeout.ms zookeeper.set.acl zookeeper.ssl.cipher.suites zookeeper.ssl.client.enable zookeeper.ssl.crl.enable
zookeeper.ssl.enabled.protocols zookeeper.ssl.endpoint.identification.algorithm zookeeper.ssl.keystore.location
zookeeper.ssl.keystore.password zookeeper.ssl.keystore.type zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol
zookeeper.ssl.truststore.location zookeeper.ssl.truststore.password zookeeper.ssl.truststore.type zookeeper.sync.time.ms
"""

UNUSED_PROPERTIES = frozenset(_NAMES.split())
"""All single properties without an effect, by name."""

_GROUPS = r"group\.(?:consumer|share|streams|coordinator)"
"""Prefixes of unused group properties. The whole of ``group.`` is not included, so that misspelt names of supported properties
are reported.
"""
_UNUSED_PREFIXES = re.compile(rf"(?:listener\.name|rsm\.config|rlmm\.config|sasl|ssl|zookeeper|{_GROUPS}|share|controller)\.")
"""Properties whose names users choose, and families of properties that newer releases extend."""

GUARDS = (
    "create.topic.policy.class.name",
    "alter.config.policy.class.name",
    "ssl.client.auth",
    "client.quota.callback.class",
)
"""Properties that restrict clients. If one is set, a warning says that the property has no effect here."""


def is_unused(name: str) -> bool:
    """Whether this is a Kafka property without an effect, unless `server_properties` has found a use for it."""
    return name in UNUSED_PROPERTIES or _UNUSED_PREFIXES.match(name) is not None
