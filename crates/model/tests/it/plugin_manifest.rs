//! P8: the plugin's manifest: what is read, what is refused and in which words, and its published schema.

use std::collections::BTreeSet;

use bulkhead_model::plugin::{
    InvocationKind,
    manifest::{Manifest, Permission, SettingKind, reader_fields, schema::schema},
};
use serde_json::{Value, json};

use crate::workflow_support::root;

const FULL: &str = r#"{
  "$schema": "../../docs/plugin.schema.json",
  "name": "weather",
  "version": "1.2.0-beta.1",
  "description": "Tells the weather \ud83c\udf26 at http:\/\/example.com.",
  "entry": "src/main.ts",
  "capabilities": {
    "tools": {"forecast": {"description": "The weather", "input": {"type": "object", "properties": {"city": {"type": "string"}}}}},
    "middleware": ["beforeModel"],
    "events": ["installed", "timer"],
    "webSearch": true, "webFetch": true, "compaction": true, "modelProvider": true, "liveConnection": true,
    "channels": {"telegram": {"label": "Telegram"}},
    "decisions": ["noul", "choose", "score"],
    "voice": ["speak", "voices", "transcribe"],
    "media": {"thumbnail": {"description": "Makes small pictures"}},
    "sshHooks": {"deploy": {"commandTimeoutsS": [60, 90]}}
  },
  "permissions": ["host:session:post", "host:ssh"],
  "egress": ["API.weather.example.", {"host": "*.tiles.example.org:8443", "reason": "maps"}],
  "settings": {
    "units": {"type": "choice", "options": ["metric", "imperial"], "default": "metric", "label": "Units"},
    "days": {"type": "number", "min": 1, "max": 14, "default": 3.5},
    "greeting": {"type": "text", "required": true},
    "loud": {"type": "boolean"},
    "servers": {"type": "hosts", "description": "Your own servers"}
  },
  "secrets": {"apiKey": {"label": "API key"}, "other": {"required": false}}
}"#;

fn read(text: &str) -> Manifest {
    match Manifest::read("plugin.json", text) {
        Ok(manifest) => manifest,
        Err(error) => panic!("{error}"),
    }
}

fn complaint(text: &str) -> String {
    match Manifest::read("plugin.json", text) {
        Ok(manifest) => panic!("it was read: {manifest:?}"),
        Err(error) => error.to_string(),
    }
}

/// The least manifest, with more fields.
fn with(fields: &str) -> String {
    format!(
        r#"{{"name": "a", "version": "1.0.0", "entry": "a.js", "capabilities": {{"webSearch": true}}{fields}}}"#
    )
}

#[test]
fn p8_a_manifest_says_all_that_a_plugin_is() {
    let manifest = read(FULL);
    assert_eq!(
        manifest.description.as_deref(),
        Some("Tells the weather \u{1f326} at http://example.com.")
    );
    assert_eq!(
        manifest.permissions,
        [Permission::SessionPost, Permission::Ssh]
    );
    let rules: Vec<_> = manifest
        .egress
        .iter()
        .map(|egress| egress.rule.to_string())
        .collect();
    assert_eq!(
        rules,
        ["api.weather.example:443", "*.tiles.example.org:8443"]
    );
    assert_eq!(manifest.egress[1].reason.as_deref(), Some("maps"));
    assert_eq!(
        manifest.settings["days"].kind,
        SettingKind::Number {
            min: Some(1.0),
            max: Some(14.0)
        }
    );
    assert_eq!(manifest.settings["days"].default, Some(json!(3.5)));
    assert!(manifest.secrets["apiKey"].required && !manifest.secrets["other"].required);
    let input = manifest.capabilities.tools["forecast"]
        .input
        .as_ref()
        .unwrap();
    assert_eq!(input["properties"]["city"]["type"], "string");
}

#[test]
fn p8_each_capability_means_exports_with_their_kinds() {
    let manifest = read(FULL);
    let handlers: Vec<_> = manifest
        .handlers()
        .iter()
        .map(|h| format!("{} {}", h.path.join("."), h.kind.name()))
        .collect();
    let expected = [
        "tools.forecast tool",
        "middleware.beforeModel middleware",
        "events.installed lifecycle",
        "events.timer lifecycle",
        "webSearch web_search",
        "webFetch web_fetch",
        "compaction.summarize compaction",
        "modelProvider.complete chat_complete",
        "liveConnection.open connection_open",
        "liveConnection.receive connection_receive",
        "liveConnection.timer connection_timer",
        "channels.telegram.receive channel_receive",
        "channels.telegram.send channel_send",
        "decisions.noul decision",
        "decisions.choose decision",
        "decisions.score decision",
        "voice.speak speak",
        "voice.voices voices",
        "voice.transcribe transcribe",
        "media.thumbnail tool",
        "sshHooks.deploy ssh_hook",
    ];
    assert_eq!(handlers, expected);
    let kinds: BTreeSet<_> = manifest
        .handlers()
        .iter()
        .map(|handler| handler.kind.name())
        .collect();
    assert_eq!(
        kinds.len(),
        InvocationKind::ALL.len(),
        "every kind has a capability"
    );
    assert_eq!(
        manifest.handler("tool.forecast"),
        manifest.handler("tools.forecast")
    );
    assert_eq!(
        manifest.handler("tools.forecast").unwrap().kind,
        InvocationKind::Tool
    );
    assert_eq!(manifest.handler("tools"), None);
    let timeouts = manifest
        .handler("sshHooks.deploy")
        .unwrap()
        .command_timeouts;
    assert_eq!(
        timeouts
            .iter()
            .map(std::time::Duration::as_secs)
            .collect::<Vec<_>>(),
        [60, 90]
    );
}

#[test]
fn p8_json_that_yaml_would_read_otherwise_is_read_as_json() {
    let text = "{\n\t\"name\":\t\"a\",\n\t\"version\": \"1.0.0\",\n\t\"entry\": \"a.js\",\n\t\"capabilities\": {\"webSearch\":true},\n\t\"description\": \"a: b # c\\n\\t\\\"d\\\" \\u0041\\/\"\n}";
    assert_eq!(
        read(text).description.as_deref(),
        Some("a: b # c\n\t\"d\" A/")
    );
    let minified = FULL.lines().map(str::trim).collect::<String>();
    assert_eq!(read(&minified), read(FULL));
    read(&format!("\u{feff}{FULL}"));
}

#[test]
fn p8_every_problem_is_named_at_once_with_its_place_and_the_nearest_name() {
    let text = r#"{
  "name": "Weather!",
  "version": "1.2",
  "entry": "../main.py",
  "capabilties": {},
  "capabilities": {
    "tool": {},
    "tools": {"my tool": {"input": 5}},
    "middleware": ["beforeModal", "afterTurn", "afterTurn"],
    "webSearch": "yes"
  },
  "permissions": ["host:session:pots", 5],
  "egress": ["https://good.com/x", "good.com", "good.com", "127.0.0.1", "*.com", {"reason": "x"}],
  "settings": {
    "a": {"type": "txt"},
    "b": {"type": "number", "default": "x", "min": 5, "max": 1},
    "c": {"type": "text", "options": ["x"]},
    "d": {"type": "choice"},
    "e": {"type": "hosts", "default": ["10.0.0.1"]}
  },
  "secrets": {"1": {}, "k": {"name": "x"}}
}"#;
    let complaint = complaint(text);
    for expected in [
        "plugin.json:2:11: name: expected a plugin's name: 1 to 64 of a-z, 0-9 and `-`, beginning with a letter, found the text \"Weather!\"",
        "3:14: version: expected a version such as 1.2.0 or 2.0.0-beta.1",
        "4:12: entry: expected a path below the manifest",
        "5:3: capabilties: unknown field `capabilties`",
        "did you mean `capabilities`?",
        "7:5: capabilities.tool: unknown field `tool`",
        "did you mean `tools`?",
        "\"my tool\" is not a tool's name",
        "the field `description` is missing",
        "expected a JSON Schema",
        "unknown hook `beforeModal`",
        "did you mean `beforeModel`?",
        "capabilities.middleware[2]: it is listed twice",
        "capabilities.webSearch: expected `true` or `false`",
        "permissions[0]: unknown permission `host:session:pots`",
        "did you mean `host:session:post`?",
        "permissions[1]: expected text",
        "egress[0]: \"https://good.com/x\" is not an allow-list entry: it has a scheme",
        "egress[2]: it is listed twice",
        "egress[3]: \"127.0.0.1\" is not an allow-list entry: addresses cannot be allowed",
        "egress[4]:",
        "egress[5]: the field `host` is missing",
        "unknown type of setting `txt`",
        "did you mean `text`?",
        "settings.b.default: expected a number from 5 to 1",
        "settings.b.max: `max` is below `min`",
        "only a setting of the type `choice` has `options`",
        "settings.d: the field `options` is missing",
        "settings.e.default: expected hosts",
        "\"1\" is not a secret's name",
        "secrets.k.name: unknown field `name`",
    ] {
        assert!(
            complaint.contains(expected),
            "{expected:?} is not in:\n{complaint}"
        );
    }
}

#[test]
fn p8_what_is_missing_or_no_json_is_said() {
    let text = complaint("{}");
    for name in ["name", "version", "entry", "capabilities"] {
        assert!(
            text.contains(&format!("the field `{name}` is missing")),
            "{text}"
        );
    }
    assert!(complaint("").contains("this is no JSON"));
    assert_eq!(
        complaint("{\n  \"name\": 'a'\n}"),
        "plugin.json:2:11: this is no JSON: expected value"
    );
    assert!(complaint("name: a\n").contains("this is no JSON"));
    assert!(complaint("[]").contains("expected a mapping"));
    assert!(
        complaint(r#"{"name": "a", "version": "1.0.0", "entry": "a.js", "capabilities": {}}"#)
            .contains("at least one capability")
    );
    assert!(complaint(&with(r#", "name": "b""#)).contains("written twice"));
    let hooks = r#"{"name": "a", "version": "1.0.0", "entry": "a.js", "capabilities": {"sshHooks": {"x": {}}}}"#;
    assert!(complaint(hooks).contains("`host:ssh`"));
    assert!(
        Manifest::read_bytes("plugin.json", b"\xff")
            .unwrap_err()
            .to_string()
            .contains("not UTF-8")
    );
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100));
    complaint(&deep);
    complaint(&"[".repeat(200_000));
}

#[test]
fn p8_settings_are_checked_and_completed() {
    let manifest = read(FULL);
    let given = json!({"greeting": "hello", "servers": ["NAS.home.example:8443"], "loud": null});
    let complete = manifest.settings(given.as_object().unwrap()).unwrap();
    assert_eq!(
        Value::Object(complete.clone()),
        json!({"greeting": "hello", "servers": ["NAS.home.example:8443"], "units": "metric", "days": 3.5})
    );
    let egress = manifest.egress(&complete).unwrap();
    let rules: Vec<_> = egress
        .policy
        .allow
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        rules,
        [
            "api.weather.example:443",
            "*.tiles.example.org:8443",
            "nas.home.example:8443"
        ]
    );
    let named: Vec<_> = egress.named.iter().map(ToString::to_string).collect();
    assert_eq!(
        named,
        ["nas.home.example"],
        "P9: only what the installer named"
    );
    let wrong = json!({"unit": "metric", "units": "kelvin", "days": 15, "servers": ["10.0.0.1"], "loud": 1});
    let error = manifest
        .settings(wrong.as_object().unwrap())
        .unwrap_err()
        .to_string();
    for expected in [
        "settings.unit: the manifest declares no such setting; did you mean `units`?",
        "settings.units: expected one of metric, imperial",
        "settings.days: expected a number from 1 to 14",
        "settings.servers: expected hosts",
        "settings.loud: expected true or false",
        "settings.greeting is missing",
    ] {
        assert!(error.contains(expected), "{expected:?} is not in:\n{error}");
    }
}

#[test]
fn p8_plugin_schema_drift() {
    let path = root().join("docs/plugin.schema.json");
    let current = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(
        committed == current,
        "docs/plugin.schema.json is not what the code says; regenerate it with UPDATE_GENERATED=1"
    );
}

#[test]
fn p8_the_schema_and_the_reader_know_the_same_fields_and_words() {
    let schema = schema();
    let mut seen = BTreeSet::new();
    for (definition, fields) in reader_fields() {
        let object = match definition {
            "" => &schema,
            name => &schema["$defs"][name],
        };
        assert_eq!(object["additionalProperties"], false, "{definition}");
        let properties = object["properties"].as_object().unwrap();
        let known: BTreeSet<_> = properties.keys().map(String::as_str).collect();
        assert_eq!(known, fields.into_iter().collect(), "{definition}");
        for (name, field) in properties {
            assert!(
                field.get("description").is_some(),
                "{definition}.{name} has no description"
            );
        }
        seen.insert(definition.to_owned());
    }
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        let checked = seen.contains(name) || definition.get("properties").is_none();
        assert!(checked, "the reader's fields of {name} are not compared");
    }
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut full: Value = serde_json::from_str(FULL).unwrap();
    let errors: Vec<_> = validator
        .iter_errors(&full)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let all = Permission::ALL.map(Permission::name);
    full["permissions"] = json!(all);
    assert!(validator.is_valid(&full));
    read(&full.to_string());
    for (pointer, value) in [
        ("/capabilities/middleware/0", json!("beforeModal")),
        ("/permissions/0", json!("host:all")),
        ("/settings/loud/type", json!("bool")),
        ("/version", json!("1.2")),
        ("/name", json!("A b")),
        ("/entry", json!("main.py")),
        ("/capabilities/webSearch", json!(null)),
    ] {
        let mut wrong = full.clone();
        *wrong.pointer_mut(pointer).unwrap() = value;
        assert!(!validator.is_valid(&wrong), "{pointer}");
        complaint(&wrong.to_string());
    }
}
