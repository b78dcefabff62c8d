//! A complete fake of the platform: it answers every function from what it holds in memory, keeps the rule of sixty
//! requests a minute, and remembers what it was asked.

mod files;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bulkhead_isolates::{
    client,
    platform_link::{NoPermit, PlatformLink},
};
use bulkhead_model::plugin::rate::{FETCHES, RollingWindow};
use bulkhead_wire::{
    isolates::Log,
    platform::{
        self, Answer, Call, Error, answer::Answer as Answered, call::Call as Asked, error::Code,
        session_timers_set::First,
    },
};
use files::Files;

/// When this world's clock stands still.
pub const NOW_MS: i64 = 1_700_000_000_000;

pub struct FakePlatform {
    world: Mutex<World>,
    /// What a test wants instead, by the function's number.
    instead: Mutex<HashMap<u32, Answered>>,
    calls: Mutex<Vec<(String, Call)>>,
    logs: Mutex<Vec<Log>>,
    window: Mutex<RollingWindow>,
    started: Instant,
    permits: AtomicUsize,
    is_silent: AtomicBool,
}

#[derive(Default)]
struct World {
    secrets: BTreeMap<String, String>,
    messages: Vec<platform::ChatMessage>,
    errors: Vec<String>,
    todos: Vec<platform::Todo>,
    timers: BTreeMap<String, platform::Timer>,
    files: Files,
    media: BTreeMap<String, platform::Media>,
    frames: Vec<platform::Frame>,
    ids: u32,
}

impl World {
    fn id(&mut self, kind: &str) -> String {
        self.ids += 1;
        format!("{kind}-{}", self.ids)
    }
}

impl Default for FakePlatform {
    fn default() -> Self {
        Self {
            world: Mutex::default(),
            instead: Mutex::default(),
            calls: Mutex::default(),
            logs: Mutex::default(),
            window: Mutex::new(RollingWindow::new(FETCHES)),
            started: Instant::now(),
            permits: AtomicUsize::new(0),
            is_silent: AtomicBool::new(false),
        }
    }
}

impl FakePlatform {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The user has bound a secret.
    pub fn bind(&self, name: &str, value: &str) {
        self.world()
            .secrets
            .insert(name.to_owned(), value.to_owned());
    }

    pub fn write(&self, path: &str, content: &[u8]) {
        self.world().files.put(path, content);
    }

    /// From now on, this answer to the function of its number; an error for `method`.
    pub fn instead(&self, method: u32, answer: Answered) {
        self.instead.lock().unwrap().insert(method, answer);
    }

    /// From now on, neither answers nor permits come.
    pub fn be_silent(&self) {
        self.is_silent.store(true, Relaxed);
    }

    /// Every call with its token, in order.
    pub fn calls(&self) -> Vec<(String, Call)> {
        self.calls.lock().unwrap().clone()
    }

    /// The last call, without its token.
    pub fn last(&self) -> Option<Asked> {
        self.calls.lock().unwrap().last()?.1.call.clone()
    }

    pub fn logs(&self) -> Vec<Log> {
        self.logs.lock().unwrap().clone()
    }

    /// How many permits were asked for.
    pub fn permits(&self) -> usize {
        self.permits.load(Relaxed)
    }

    /// Frames that went to the live connection.
    pub fn frames(&self) -> Vec<platform::Frame> {
        self.world().frames.clone()
    }

    /// Errors that the person saw.
    pub fn errors(&self) -> Vec<String> {
        self.world().errors.clone()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// The answer to a call.
    pub fn carry_out(&self, token: &str, call: Call) -> Answered {
        self.calls
            .lock()
            .unwrap()
            .push((token.to_owned(), call.clone()));
        let Some(asked) = call.call else {
            return Answered::Error(Error::new(Code::Unavailable, "no such function"));
        };
        if let Some(answer) = self.instead.lock().unwrap().get(&asked.method()) {
            return answer.clone();
        }
        self.world().answer(asked).unwrap_or_else(Answered::Error)
    }

    fn take_permit(&self) -> Result<(), Duration> {
        self.permits.fetch_add(1, Relaxed);
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap();
        let taken = self.window.lock().unwrap().take(now_ms);
        taken.map_err(|refused| refused.retry_after)
    }

    async fn say_nothing(&self) {
        if self.is_silent.load(Relaxed) {
            std::future::pending().await
        }
    }
}

/// As the platform at the other end of the service's stream.
#[async_trait]
impl client::Platform for FakePlatform {
    async fn answer(&self, token: &str, call: Call) -> Answer {
        self.say_nothing().await;
        Answer {
            answer: Some(self.carry_out(token, call)),
        }
    }

    async fn permit(&self) -> Result<(), Duration> {
        self.say_nothing().await;
        self.take_permit()
    }

    async fn log(&self, line: Log) {
        self.logs.lock().unwrap().push(line);
    }
}

/// As the link itself, where there is no service between.
#[async_trait]
impl PlatformLink for FakePlatform {
    async fn ask(&self, call: Asked) -> Answered {
        self.say_nothing().await;
        self.carry_out("", Call { call: Some(call) })
    }

    async fn permit(&self) -> Result<(), NoPermit> {
        if self.is_silent.load(Relaxed) {
            return Err(NoPermit::NoAnswer);
        }
        self.take_permit()
            .map_err(|retry_after| NoPermit::UsedUp { retry_after })
    }
}

fn not_found(what: &str) -> Error {
    Error::new(Code::NotFound, format!("there is no {what}"))
}

impl World {
    fn answer(&mut self, asked: Asked) -> Result<Answered, Error> {
        Ok(match asked {
            Asked::GetSecret(it) => {
                let value = self
                    .secrets
                    .get(&it.name)
                    .ok_or_else(|| not_found("such secret"))?
                    .clone();
                Answered::GetSecret(platform::Secret { value })
            }
            Asked::SessionInfo(_) => Answered::SessionInfo(session()),
            Asked::SessionMessages(it) => Answered::SessionMessages(self.messages(&it)),
            Asked::SessionPost(it) => Answered::SessionPost(self.post(it)),
            Asked::SessionSendError(it) => {
                self.errors.push(it.message);
                Answered::SessionSendError(platform::Done {})
            }
            Asked::SessionTodosList(_) => Answered::SessionTodosList(self.todos()),
            Asked::SessionTodosSet(it) => Answered::SessionTodosSet(self.set_todos(it)),
            Asked::SessionTimersList(_) => Answered::SessionTimersList(platform::Timers {
                timers: self.timers.values().cloned().collect(),
            }),
            Asked::SessionTimersSet(it) => Answered::SessionTimersSet(self.set_timer(it)?),
            Asked::SessionTimersCancel(it) => {
                let cancelled = self.timers.remove(&it.name).is_some();
                Answered::SessionTimersCancel(platform::Cancelled { cancelled })
            }
            Asked::SessionLlmComplete(it) => Answered::SessionLlmComplete(complete(&it)),
            Asked::LlmComplete(it) => Answered::LlmComplete(complete(&it)),
            Asked::AgentsList(_) => Answered::AgentsList(agents()),
            Asked::AgentsAsk(it) => {
                known_agent(&it.agent_id)?;
                let text = format!("You asked: {}", it.text);
                Answered::AgentsAsk(platform::AgentAnswer {
                    text,
                    session_id: "session-of-agent".into(),
                })
            }
            Asked::AgentsSend(it) => {
                known_agent(&it.agent_id)?;
                let id = self.id("message");
                Answered::AgentsSend(platform::Posted { id })
            }
            Asked::ModelsList(_) => Answered::ModelsList(models()),
            Asked::WorkspaceRead(it) => Answered::WorkspaceRead(self.files.read(&it)?),
            Asked::WorkspaceWrite(it) => Answered::WorkspaceWrite(self.files.write(it)?),
            Asked::WorkspaceList(it) => Answered::WorkspaceList(self.files.list(&it)?),
            Asked::WorkspaceStat(it) => Answered::WorkspaceStat(self.files.stat(&it.path)?),
            Asked::WorkspaceRemove(it) => Answered::WorkspaceRemove(self.files.remove(&it)?),
            Asked::WorkspaceMove(it) => Answered::WorkspaceMove(self.files.rename(&it)?),
            Asked::DecideNoul(it) => Answered::DecideNoul(noul(&it)),
            Asked::DecideChoose(_) => Answered::DecideChoose(platform::Chosen {
                index: 1,
                reason: Some("the second is best".into()),
            }),
            Asked::DecideScore(it) => Answered::DecideScore(platform::Score {
                score: f64::midpoint(it.min, it.max),
                reason: None,
            }),
            Asked::MediaUpload(it) => Answered::MediaUpload(self.upload(it)),
            Asked::MediaTranscode(it) => Answered::MediaTranscode(self.transcode(it)?),
            Asked::MediaInfo(it) => {
                let media = self
                    .media
                    .get(&it.token)
                    .ok_or_else(|| not_found("such media"))?;
                Answered::MediaInfo(media.clone())
            }
            Asked::SshCommand(it) => Answered::SshCommand(ssh(&it)),
            Asked::ConnectionSend(it) => {
                let frames = u32::try_from(it.frames.len()).unwrap();
                self.frames.extend(it.frames);
                Answered::ConnectionSend(platform::Sent { frames })
            }
        })
    }

    fn messages(&self, asked: &platform::SessionMessages) -> platform::Messages {
        let before = asked.before.as_ref();
        let end = before.and_then(|id| self.messages.iter().position(|message| message.id == *id));
        let older = &self.messages[..end.unwrap_or(self.messages.len())];
        let start = older.len().saturating_sub(asked.limit as usize);
        platform::Messages {
            messages: older[start..].to_vec(),
            more: start > 0,
        }
    }

    fn post(&mut self, asked: platform::SessionPost) -> platform::Posted {
        let id = self.id("message");
        let attachments = asked.attachments.iter().filter_map(|token| {
            let media = self.media.get(token)?;
            Some(platform::Attachment {
                name: media.name.clone(),
                media_type: media.media_type.clone(),
                size_bytes: media.size_bytes,
                token: token.clone(),
            })
        });
        let message = platform::ChatMessage {
            id: id.clone(),
            role: platform::Role::Assistant.into(),
            author: Some("the plugin".into()),
            text: asked.text,
            created_at_ms: NOW_MS,
            attachments: attachments.collect(),
        };
        self.messages.push(message);
        platform::Posted { id }
    }

    fn todos(&self) -> platform::Todos {
        platform::Todos {
            todos: self.todos.clone(),
        }
    }

    fn set_todos(&mut self, asked: platform::SessionTodosSet) -> platform::Todos {
        self.todos = asked
            .todos
            .into_iter()
            .map(|todo| platform::Todo {
                id: todo.id.unwrap_or_else(|| self.id("todo")),
                text: todo.text,
                status: todo.status,
            })
            .collect();
        self.todos()
    }

    fn set_timer(&mut self, asked: platform::SessionTimersSet) -> Result<platform::Timer, Error> {
        let at_ms = match asked.first {
            Some(First::AtMs(at_ms)) => at_ms,
            Some(First::AfterMs(after_ms)) => NOW_MS + i64::try_from(after_ms).unwrap(),
            None => return Err(Error::new(Code::BadRequest, "the timer has no time")),
        };
        let timer = platform::Timer {
            name: asked.name.clone(),
            at_ms,
            every_ms: asked.every_ms,
            data_json: asked.data_json,
        };
        if self.timers.len() >= 100 && !self.timers.contains_key(&asked.name) {
            return Err(Error::new(Code::Limit, "a chat has at most 100 timers"));
        }
        self.timers.insert(asked.name, timer.clone());
        Ok(timer)
    }

    fn upload(&mut self, asked: platform::MediaUpload) -> platform::Media {
        let token = self.id("media");
        let media = platform::Media {
            token: token.clone(),
            name: asked.name,
            media_type: asked.media_type,
            size_bytes: asked.content.len() as u64,
            ..platform::Media::default()
        };
        self.media.insert(token, media.clone());
        media
    }

    fn transcode(&mut self, asked: platform::MediaTranscode) -> Result<platform::Media, Error> {
        let source = self
            .media
            .get(&asked.token)
            .ok_or_else(|| not_found("such media"))?
            .clone();
        let token = self.id("media");
        let media = platform::Media {
            token: token.clone(),
            media_type: asked.media_type,
            width_px: asked.width_px_max,
            height_px: asked.height_px_max,
            duration_ms: asked.sample_rate_hz.map(|_| 1_500),
            ..source
        };
        self.media.insert(token, media.clone());
        Ok(media)
    }
}

fn session() -> platform::Session {
    platform::Session {
        id: "session-1".into(),
        agent_id: "agent-1".into(),
        title: Some("A chat".into()),
        channel: "web".into(),
        locale: Some("de-CH".into()),
        time_zone: Some("Europe/Zurich".into()),
    }
}

/// Says back what the last message was; where a schema is given, an object with it.
fn complete(asked: &platform::Complete) -> platform::Completion {
    let last = asked
        .messages
        .last()
        .map(|turn| turn.text.clone())
        .unwrap_or_default();
    let text = match asked.schema_json {
        Some(_) => format!("{{\"said\":{last:?}}}"),
        None => last.clone(),
    };
    platform::Completion {
        text,
        model: asked.model.clone().unwrap_or_else(|| "model-1".into()),
        stopped: platform::completion::Stopped::End.into(),
        input_tokens: last.len() as u64,
        output_tokens: 7,
    }
}

fn agents() -> platform::Agents {
    let agent = |id: &str, description: Option<&str>| platform::Agent {
        id: id.into(),
        name: format!("The {id}"),
        description: description.map(Into::into),
    };
    platform::Agents {
        agents: vec![agent("agent-1", Some("It helps.")), agent("agent-2", None)],
    }
}

fn known_agent(id: &str) -> Result<(), Error> {
    let is_known = agents().agents.iter().any(|agent| agent.id == id);
    is_known
        .then_some(())
        .ok_or_else(|| not_found("such agent"))
}

fn models() -> platform::Models {
    let model = platform::Model {
        id: "model-1".into(),
        name: "Model One".into(),
        provider: "fake".into(),
        context_tokens: Some(200_000),
        output_tokens_max: None,
        reads_images: true,
        calls_tools: false,
        is_default: true,
    };
    platform::Models {
        models: vec![model],
    }
}

/// Decides by the question's end.
fn noul(asked: &platform::DecideNoul) -> platform::Noul {
    use platform::noul::Verdict;
    let verdict = match asked.question.as_str() {
        question if question.ends_with('?') => Verdict::Yes,
        question if question.ends_with('!') => Verdict::No,
        _ => Verdict::Unknown,
    };
    platform::Noul {
        verdict: verdict.into(),
        reason: asked.context.clone(),
    }
}

/// `exit N`, `kill SIGNAL`, and otherwise the input back.
fn ssh(asked: &platform::SshCommand) -> platform::Ran {
    use platform::ran::Ended;
    let ended = match asked.command.split_once(' ') {
        Some(("exit", code)) => Ended::ExitCode(code.parse().unwrap()),
        Some(("kill", signal)) => Ended::Signal(signal.into()),
        _ => Ended::ExitCode(0),
    };
    platform::Ran {
        ended: Some(ended),
        stdout: asked.input.clone(),
        stderr: b"a\xffb".to_vec(),
        stdout_cut: false,
        stderr_cut: true,
        duration_ms: 12,
    }
}
