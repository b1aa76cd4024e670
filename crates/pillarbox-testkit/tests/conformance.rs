//! Every case of both suites on every backend: `<suite>::<backend>::<group>::<case>`.

mod store {
    use pillarbox_testkit::store_conformance;

    store_conformance!(memory, pillarbox_testkit::MemoryBackend);
    #[cfg(feature = "sqlite")]
    store_conformance!(sqlite, pillarbox_testkit::SqliteBackend);
    #[cfg(feature = "mysql")]
    store_conformance!(mysql, pillarbox_testkit::MysqlBackend);
    #[cfg(feature = "postgres")]
    store_conformance!(postgres, pillarbox_testkit::PostgresBackend);
}

mod tx {
    use pillarbox_testkit::tx_conformance;

    tx_conformance!(memory, pillarbox_testkit::MemoryBackend);
    #[cfg(feature = "sqlite")]
    tx_conformance!(sqlite, pillarbox_testkit::SqliteBackend);
    #[cfg(feature = "mysql")]
    tx_conformance!(mysql, pillarbox_testkit::MysqlBackend);
    #[cfg(feature = "postgres")]
    tx_conformance!(postgres, pillarbox_testkit::PostgresBackend);
}
