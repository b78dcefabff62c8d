//! What the model says, before it takes the form of one API.

use std::time::Duration;

use serde_json::Value;

/// What the model does with every conversation.
#[derive(Debug, Clone)]
pub enum Script {
    /// Calls a tool that writes `text` to `path` (absolute, as the agent sees it); when the tool's result comes
    /// back, says that it is done.
    Edit { path: String, text: String },
    /// Says this and calls nothing.
    Say(String),
    /// Answers every request with this status and an error of the API's form.
    Fail { status: u16 },
    /// Waits before each event of a stream.
    Slow { text: String, pause: Duration },
    /// Ends the stream in the middle.
    Broken,
}

/// One answer, in no API's form yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Say {
    Text(String),
    Call { tool: String, arguments: Value },
}

/// A tool that the agent offered: its name and the names and types of its parameters.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) parameters: Value,
}

impl Script {
    /// The answer to a conversation with these tools, in which a tool's result is there or not.
    pub(crate) fn say(&self, tools: &[Tool], has_result: bool) -> Say {
        match self {
            Self::Edit { path, text } if !has_result => edit(tools, path, text),
            Self::Edit { path, .. } => Say::Text(format!("I wrote {path}.")),
            Self::Say(text) | Self::Slow { text, .. } => Say::Text(text.clone()),
            Self::Fail { .. } | Self::Broken => Say::Text("unfinished".to_owned()),
        }
    }

    pub(crate) const fn pause(&self) -> Duration {
        match self {
            Self::Slow { pause, .. } => *pause,
            _ => Duration::ZERO,
        }
    }
}

/// A call of the best tool there is for writing a file. Without any, a text: the request was for something
/// else, a title say.
fn edit(tools: &[Tool], path: &str, text: &str) -> Say {
    let writers = ["Write", "write_file", "write", "create_file"];
    for name in writers {
        if let Some(tool) = tools.iter().find(|tool| tool.name == name) {
            return call(tool, &[("path", path), ("content", text)]);
        }
    }
    let shells = [
        "exec_command",
        "shell_command",
        "shell",
        "local_shell",
        "Bash",
        "bash",
        "run_shell_command",
    ];
    for name in shells {
        if let Some(tool) = tools.iter().find(|tool| tool.name == name) {
            let line = format!("printf %s '{}' > '{path}'", text.replace('\'', r"'\''"));
            return call(tool, &[("command", &line)]);
        }
    }
    Say::Text("A title".to_owned())
}

/// Fills the tool's own parameters, which every agent calls differently.
fn call(tool: &Tool, values: &[(&str, &str)]) -> Say {
    let mut arguments = serde_json::Map::new();
    let properties = tool.parameters.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        let meaning = match name.as_str() {
            "file_path" | "filePath" | "path" | "absolute_path" => "path",
            "content" | "contents" | "text" => "content",
            "command" | "cmd" => "command",
            _ => continue,
        };
        if let Some((_, value)) = values.iter().find(|(known, _)| *known == meaning) {
            let is_list = schema.get("type").and_then(Value::as_str) == Some("array");
            let value = match is_list {
                true => serde_json::json!(["sh", "-c", value]),
                false => Value::from(*value),
            };
            arguments.insert(name.clone(), value);
        }
    }
    for name in required(&tool.parameters) {
        arguments
            .entry(name)
            .or_insert_with(|| Value::from("edit the file"));
    }
    Say::Call {
        tool: tool.name.clone(),
        arguments: arguments.into(),
    }
}

fn required(parameters: &Value) -> Vec<String> {
    let names = parameters.get("required").and_then(Value::as_array);
    let names = names.into_iter().flatten();
    names
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}

/// A tool description of any of the APIs.
pub(crate) fn tool(description: &Value) -> Option<Tool> {
    let description = description.get("function").unwrap_or(description);
    let schemas = ["input_schema", "parameters", "parametersJsonSchema"];
    let parameters = schemas.iter().find_map(|key| description.get(*key));
    Some(Tool {
        name: description.get("name")?.as_str()?.to_owned(),
        parameters: parameters.cloned().unwrap_or_default(),
    })
}

pub(crate) fn tools(list: Option<&Value>) -> Vec<Tool> {
    let list = list.and_then(Value::as_array);
    list.into_iter().flatten().filter_map(tool).collect()
}

/// The elements of a field that is a list.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}
