//! The API's document is generated, committed, and must not drift.

/// R18: `docs/openapi.json` is what the server says of itself.
#[test]
fn r18_the_committed_document_is_the_api() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let now = bulkhead_server::openapi();
    if std::env::var_os("BULKHEAD_WRITE_DOCS").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == now,
        "docs/openapi.json has drifted: run this test once with BULKHEAD_WRITE_DOCS=1"
    );
    let document: serde_json::Value = serde_json::from_str(&now).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
}
