//! Transcripts of agents, read into events.

use bulkhead_session::protocol::{Acp, AgentProtocol, Claude, Codex};
use proptest::prelude::*;

use crate::support::read;

const CLAUDE: &str = r#"{"type":"system","subtype":"init","session_id":"s-1","model":"claude-x","tools":["Bash"],"apiKeySource":"ANTHROPIC_API_KEY"}
{"type":"assistant","message":{"id":"m1","role":"assistant","content":[{"type":"thinking","thinking":"hm"}],"usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":1}},"session_id":"s-1"}
{"type":"assistant","message":{"id":"m1","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Write","input":{"file_path":"a"}}],"usage":{"input_tokens":10,"output_tokens":1}}}
{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"written","is_error":false}]}}
{"type":"rate_limit_event","x":1}
{"type":"assistant","message":{"id":"m2","content":[{"type":"text","text":"Done."}],"usage":{"input_tokens":20,"output_tokens":3}}}
{"type":"result","subtype":"success","is_error":false,"num_turns":2,"result":"Done.","total_cost_usd":0.25,"usage":{"input_tokens":30,"output_tokens":4}}
"#;

#[tokio::test]
async fn h8_claudes_stream_becomes_events() {
    let (driven, events) = read(&mut Claude::default(), CLAUDE.as_bytes()).await;
    assert_eq!(
        driven.unwrap().finished,
        Some((true, Some("Done.".to_owned())))
    );
    insta::assert_snapshot!(events.json());
}

#[tokio::test]
async fn h8_claudes_error_results_are_failures() {
    let line = r#"{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":3}"#;
    let (driven, _) = read(&mut Claude::default(), line.as_bytes()).await;
    assert_eq!(
        driven.unwrap().finished,
        Some((false, Some("error_max_turns".to_owned())))
    );
}

const CODEX: &str = r#"Reading prompt from stdin...
{"type":"thread.started","thread_id":"th-1"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"i0","type":"reasoning","text":"**Looking**"}}
{"type":"item.started","item":{"id":"i1","type":"command_execution","command":"ls","aggregated_output":"","status":"in_progress"}}
{"type":"item.completed","item":{"id":"i1","type":"command_execution","command":"ls","aggregated_output":"a\n","exit_code":0,"status":"completed"}}
{"type":"item.started","item":{"id":"i2","type":"todo_list","items":[{"text":"edit","completed":false}]}}
{"type":"item.completed","item":{"id":"i3","type":"file_change","changes":[{"path":"a","kind":"add"}],"status":"failed"}}
{"type":"item.completed","item":{"id":"i4","type":"agent_message","text":"Done."}}
{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":50,"output_tokens":7}}
"#;

#[tokio::test]
async fn h8_codexs_lines_become_events() {
    let (driven, events) = read(&mut Codex::default(), CODEX.as_bytes()).await;
    assert_eq!(
        driven.unwrap().finished,
        Some((true, Some("Done.".to_owned())))
    );
    insta::assert_snapshot!(events.json());
}

#[tokio::test]
async fn h8_a_failed_turn_of_codex_is_a_failure() {
    let lines = "{\"type\":\"error\",\"message\":\"no model\"}\n{\"type\":\"turn.failed\",\"error\":{\"message\":\"gave up\"}}\n";
    let (driven, _) = read(&mut Codex::default(), lines.as_bytes()).await;
    assert_eq!(
        driven.unwrap().finished,
        Some((false, Some("gave up".to_owned())))
    );
}

const ACP: &str = r#"starting up
{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{},"agentInfo":{"name":"gem","version":"1"}}}
{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s-1","models":{"currentModelId":"m","availableModels":[]}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"available_commands_update","availableCommands":[]}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hel"}}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"lo"}}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"tool_call","toolCallId":"c1","title":"Edit a","kind":"edit","status":"pending","rawInput":{"path":"a"}}}}
{"jsonrpc":"2.0","id":"p-1","method":"session/request_permission","params":{"sessionId":"s-1","toolCall":{"toolCallId":"c1","title":"Edit a"},"options":[{"optionId":"o1","name":"Always","kind":"allow_always"},{"optionId":"o2","name":"No","kind":"reject_once"}]}}
{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{"path":"/etc/passwd"}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed","content":[{"type":"diff","path":"a","newText":"x"}]}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"usage_update","used":50,"size":1000,"cost":{"amount":0.01,"currency":"USD"}}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s-1","update":{"sessionUpdate":"of_tomorrow","x":1}}}
{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn","usage":{"inputTokens":70,"outputTokens":9,"totalTokens":79}}}
"#;

#[tokio::test]
async fn h8_r7_acp_updates_become_events_and_permission_is_given_and_recorded() {
    let mut acp = Acp::new("/workspace", "do it");
    let (driven, events) = read(&mut acp, ACP.as_bytes()).await;
    assert_eq!(driven.unwrap().finished, Some((true, None)));
    insta::assert_snapshot!(events.json());
}

#[test]
fn acp_says_what_it_must_and_offers_nothing_of_its_own() {
    let mut acp = Acp::new("/workspace", "do it");
    let mut said = acp.start().write;
    for line in ACP.lines() {
        said.extend(acp.line(line).unwrap().write);
    }
    said.extend(acp.cancel().write);
    insta::assert_snapshot!(said.join("\n"));
}

#[tokio::test]
async fn acp_refusals_are_told_in_the_agents_words() {
    let lines = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}
{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"Authentication required","data":"set GEMINI_API_KEY"}}
"#;
    let (driven, _) = read(&mut Acp::new("/", ""), lines.as_bytes()).await;
    insta::assert_snapshot!(driven.unwrap_err(), @"the agent refused session/new: Authentication required: set GEMINI_API_KEY (code -32000)");
    let lines = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":2}}"#;
    let (driven, _) = read(&mut Acp::new("/", ""), lines.as_bytes()).await;
    insta::assert_snapshot!(driven.unwrap_err(), @"the agent speaks version 2 of the Agent Client Protocol, and Bulkhead speaks 1: use a version of the agent that still speaks 1");
}

/// Case 63's table, for each protocol: what is no text fails the session with a precise error, what is
/// text but no JSON is kept.
#[tokio::test]
async fn case_63_bad_lines_through_every_protocol() {
    type Make = fn() -> Box<dyn AgentProtocol>;
    let protocols: [Make; 3] = [
        || Box::new(Acp::new("/", "")),
        || Box::new(Claude::default()),
        || Box::new(Codex::default()),
    ];
    for make in protocols {
        for (line, expected) in [
            (
                b"a\0b\n".as_slice(),
                "line 1 of the agent's output holds a NUL byte at byte 1",
            ),
            (
                b"\xff\n",
                "line 1 of the agent's output is not UTF-8 at byte 0",
            ),
        ] {
            let (driven, _) = read(&mut *make(), line).await;
            assert_eq!(driven.unwrap_err().to_string(), expected);
        }
        for length in [1, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, 10 << 20] {
            let (driven, events) = read(&mut *make(), &vec![b'x'; length]).await;
            assert_eq!(driven.unwrap().finished, None);
            assert_eq!(events.0.len(), 1, "{length}");
            assert!(events.json().len() <= (32 << 10) + 100);
        }
        let (driven, _) = read(&mut *make(), &vec![b'x'; (10 << 20) + 1]).await;
        assert!(
            driven
                .unwrap_err()
                .to_string()
                .contains("longer than the limit")
        );
    }
}

proptest! {
    /// Whatever an agent says: events that fit in a frame, or an error; never a panic.
    #[test]
    fn no_line_makes_a_protocol_panic(line in r#"(\{"(type|id|method|result|params|item)":("[a-z/_.]{0,12}"|[0-9]|\{\}|null|\[1\]),?\}|.{0,40})"#) {
        let mut protocols: Vec<Box<dyn AgentProtocol>> =
            vec![Box::new(Acp::new("/", "")), Box::new(Claude::default()), Box::new(Codex::default())];
        for protocol in &mut protocols {
            let _ = protocol.start();
            let _ = protocol.line(&line);
        }
    }
}
