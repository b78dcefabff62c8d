//! `plugin.json` as anybody may write it.

use bulkhead_model::plugin::manifest::Manifest;

pub fn manifest(data: &[u8]) {
    match Manifest::read_bytes("plugin.json", data) {
        Ok(manifest) => {
            let text = std::str::from_utf8(data).expect("it was read as text");
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            let json: serde_json::Value = serde_json::from_str(text).expect("it was read as JSON");
            assert_eq!(json["name"], manifest.name.as_str());
            assert!(!manifest.handlers().is_empty());
            for handler in manifest.handlers() {
                assert!(handler.path.len() <= 3);
                assert!(manifest.handler(&handler.path.join(".")).is_some());
            }
            if let Ok(settings) = manifest.settings(&serde_json::Map::new()) {
                let egress = manifest.egress(&settings).expect("what was read is within the limits");
                assert!(egress.policy.allow.len() >= manifest.egress.len());
            }
        }
        Err(error) => {
            assert!(!error.problems.is_empty());
            for problem in &error.problems {
                assert!(problem.place.line >= 1 && problem.place.column >= 1, "{problem}");
            }
            assert!(error.to_string().starts_with("plugin.json:"));
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let files = [
        include_str!("../../examples/plugins/weather/plugin.json"),
        include_str!("../../examples/plugins/webhook/plugin.json"),
        r#"{"name":"a","version":"0.0.1-x.1","entry":"a.mjs","capabilities":{"webFetch":true,"voice":["speak"],"decisions":["noul"]}}"#,
        "{\"name\": \"\\ud83d\\ude00\\/\", \"settings\": {\"a\": {\"type\": \"number\", \"min\": -1e3, \"default\": 5}}}",
    ];
    files.map(|text| text.as_bytes().to_vec()).to_vec()
}
