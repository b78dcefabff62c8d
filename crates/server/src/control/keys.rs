//! Secrets and tokens.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use bulkhead_model::SecretName;
use bulkhead_store::tokens::{ApiToken, NewApiToken};
use secrecy::{ExposeSecret as _, SecretString};

use super::{ALL_SCOPES, Caller, ControlPlane, Scope};
use crate::{Code, Problem, SecretView, TokenView};

/// What the first token is called.
const FIRST: &str = "admin";

impl ControlPlane {
    pub async fn secrets(&self) -> Result<Vec<SecretView>, Problem> {
        let secrets = self.plane.store.secrets().await?;
        Ok(secrets
            .into_iter()
            .map(|secret| SecretView {
                name: secret.name.to_string(),
                version: secret.version,
                updated_at_ms: secret.updated_at_ms,
            })
            .collect())
    }

    /// Sets a secret, or puts a new value in place of the old one.
    pub async fn set_secret(
        &self,
        caller: &Caller,
        name: &SecretName,
        value: SecretString,
    ) -> Result<SecretView, Problem> {
        let now = self.plane.now_ms();
        let version = self.plane.store.set_secret(name, &value, now).await?;
        tracing::info!(%name, version, by = caller.name, "a secret was set");
        Ok(SecretView {
            name: name.to_string(),
            version,
            updated_at_ms: now,
        })
    }

    pub async fn remove_secret(&self, caller: &Caller, name: &SecretName) -> Result<(), Problem> {
        self.plane.store.remove_secret(name).await?;
        tracing::info!(%name, by = caller.name, "a secret was removed");
        Ok(())
    }

    pub async fn tokens(&self) -> Result<Vec<TokenView>, Problem> {
        let tokens = self.plane.store.api_tokens().await?;
        Ok(tokens.into_iter().map(view).collect())
    }

    /// Makes a token, which is shown in this answer and never again. Nobody can give what they do not have.
    pub async fn create_token(
        &self,
        caller: &Caller,
        name: &str,
        scopes: &[Scope],
        expires_at_ms: Option<i64>,
    ) -> Result<TokenView, Problem> {
        check_name(name)?;
        if scopes.is_empty() || scopes.iter().any(|scope| !caller.scopes.contains(scope)) {
            return Err(Problem::new(
                Code::Forbidden,
                "a token gets at least one scope, and none that its maker lacks",
            )
            .field("scopes"));
        }
        let words: Vec<String> = scopes.iter().map(|scope| word(*scope)).collect();
        let now = self.plane.now_ms();
        let new = NewApiToken {
            name,
            scopes: &words,
            expires_at_ms,
            now_ms: now,
        };
        let (id, token) = self.plane.store.create_api_token(new).await?;
        tracing::info!(%id, name, by = caller.name, "a token was made");
        Ok(TokenView {
            id: id.to_string(),
            name: name.to_owned(),
            scopes: words,
            created_at_ms: now,
            last_used_at_ms: None,
            expires_at_ms,
            revoked_at_ms: None,
            token: Some(token.expose_secret().to_owned()),
        })
    }

    pub async fn revoke_token(&self, caller: &Caller, id: &str) -> Result<(), Problem> {
        self.plane
            .store
            .revoke_api_token(id.parse()?, self.plane.now_ms())
            .await?;
        tracing::info!(id, by = caller.name, "a token was revoked");
        Ok(())
    }

    /// The first token, made once, at the first start, with every scope. None where there was one before; it is
    /// in [`ControlPlane::first_token_path`], 0600, until somebody removes the file.
    pub async fn first_token(&self) -> Result<Option<SecretString>, Problem> {
        let path = self.first_token_path();
        let before = self.plane.store.api_tokens().await?;
        // A crash between the row and the file leaves a token that nobody knows: it is replaced.
        if path.exists() || before.iter().any(|token| token.last_used_at_ms.is_some()) {
            return Ok(None);
        }
        for unknown in before.iter().filter(|token| token.name == FIRST) {
            self.plane
                .store
                .revoke_api_token(unknown.id, self.plane.now_ms())
                .await?;
        }
        let made = self
            .create_token(&Caller::local(), FIRST, &ALL_SCOPES, None)
            .await?;
        let token = SecretString::from(made.token.unwrap_or_default());
        write_private(&path, token.expose_secret()).map_err(|error| Problem::internal(&error))?;
        Ok(Some(token))
    }

    pub fn first_token_path(&self) -> PathBuf {
        self.plane.config.data_dir.join("token")
    }

    /// Who holds this token; none where it is unknown, revoked or expired.
    pub(crate) async fn caller(&self, token: &SecretString) -> Result<Option<Caller>, Problem> {
        let found = self
            .plane
            .store
            .api_token(token, self.plane.now_ms())
            .await?;
        Ok(found.map(|token| Caller {
            scopes: ALL_SCOPES
                .into_iter()
                .filter(|scope| token.scopes.contains(&word(*scope)))
                .collect(),
            name: token.name,
        }))
    }
}

fn check_name(name: &str) -> Result<(), Problem> {
    let is_well_formed =
        (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_graphic());
    // Names such as these stand for the control plane itself in the history of runs.
    let is_taken = [
        "local",
        "server",
        "executor",
        "timer",
        "reconciler",
        "git gateway",
    ]
    .contains(&name);
    match is_well_formed && !is_taken {
        true => Ok(()),
        false => Err(Problem::new(
            Code::InvalidInput,
            "a token's name has 1 to 64 visible ASCII characters, and is not one of the control plane's own",
        )
        .field("name")),
    }
}

fn word(scope: Scope) -> String {
    match scope {
        Scope::Read => "read",
        Scope::Run => "run",
        Scope::Decide => "decide",
        Scope::Admin => "admin",
    }
    .to_owned()
}

fn view(token: ApiToken) -> TokenView {
    TokenView {
        id: token.id.to_string(),
        name: token.name,
        scopes: token.scopes,
        created_at_ms: token.created_at_ms,
        last_used_at_ms: token.last_used_at_ms,
        expires_at_ms: token.expires_at_ms,
        revoked_at_ms: token.revoked_at_ms,
        token: None,
    }
}

/// Private from its first byte, and whole or not there at all.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    drop(fs::remove_file(&beside));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&beside, path)
}
