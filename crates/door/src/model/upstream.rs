//! What the operator configures per model API.

use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;
use zeroize::Zeroizing;

/// The header field in which an upstream wants its credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderForm {
    /// `x-api-key: KEY`
    XApiKey,
    /// `Authorization: Bearer KEY`
    Bearer,
    /// `x-goog-api-key: KEY`
    XGoogApiKey,
    /// Another field, whose whole value is the credential (`api-key`, say).
    Other(HeaderName),
    /// None at all: a model of one's own that asks for no key. The credential is not looked at.
    None,
}

/// Whose form the gateway's own errors take, so that the agent's client library can read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApiStyle {
    Anthropic,
    OpenAi,
    Google,
}

/// One model API: where it is, and the credential that only the control plane holds.
#[derive(Debug, Clone)]
pub struct ModelUpstream {
    pub(super) name: String,
    pub(super) base_url: Url,
    pub(super) form: HeaderForm,
    pub(super) style: ApiStyle,
    pub(super) credential: SecretString,
}

/// A configured upstream cannot be used. No variant repeats the credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelUpstreamError {
    #[error("{0:?} is no name of a model upstream: expected 1 to 64 of a-z, 0-9, `-` and `_`")]
    Name(String),
    #[error(
        "the base URL of the model upstream {0:?} is not of the form https://host[:port][/path], without user name, query or fragment"
    )]
    BaseUrl(String),
    #[error(
        "the credential of the model upstream {0:?} is empty or holds characters that no header field can carry (a line break at its end, perhaps)"
    )]
    Credential(String),
    #[error(
        "the model upstream {0:?} has an http:// base URL, which would send the credential in clear; use https://, or permit its host as a private one"
    )]
    Clear(String),
}

impl ModelUpstream {
    pub fn new(
        name: &str,
        base_url: &str,
        form: HeaderForm,
        style: ApiStyle,
        credential: SecretString,
    ) -> Result<Self, ModelUpstreamError> {
        let upstream = Self {
            name: check_name(name)?,
            base_url: check_url(name, base_url)?,
            form,
            style,
            credential,
        };
        match upstream.authorize(&mut HeaderMap::new()) {
            Some(()) => Ok(upstream),
            None => Err(ModelUpstreamError::Credential(name.to_owned())),
        }
    }

    /// `anthropic`: <https://docs.anthropic.com/en/api/overview>.
    pub fn anthropic(credential: SecretString) -> Result<Self, ModelUpstreamError> {
        let (form, style) = (HeaderForm::XApiKey, ApiStyle::Anthropic);
        Self::new(
            "anthropic",
            "https://api.anthropic.com",
            form,
            style,
            credential,
        )
    }

    /// `openai`: <https://platform.openai.com/docs/api-reference/authentication>. Clients add `/v1`.
    pub fn openai(credential: SecretString) -> Result<Self, ModelUpstreamError> {
        let (form, style) = (HeaderForm::Bearer, ApiStyle::OpenAi);
        Self::new("openai", "https://api.openai.com", form, style, credential)
    }

    /// `google`: <https://ai.google.dev/api>. Clients add `/v1beta`.
    pub fn google(credential: SecretString) -> Result<Self, ModelUpstreamError> {
        let (form, style) = (HeaderForm::XGoogApiKey, ApiStyle::Google);
        let base = "https://generativelanguage.googleapis.com";
        Self::new("google", base, form, style, credential)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds the credential to a request. None where it is no header field's value.
    pub(super) fn authorize(&self, fields: &mut HeaderMap) -> Option<()> {
        let credential = self.credential.expose_secret();
        let (name, value) = match &self.form {
            HeaderForm::None => return Some(()),
            HeaderForm::XApiKey => (HeaderName::from_static("x-api-key"), credential.to_owned()),
            HeaderForm::Bearer => (AUTHORIZATION, format!("Bearer {credential}")),
            HeaderForm::XGoogApiKey => (
                HeaderName::from_static("x-goog-api-key"),
                credential.to_owned(),
            ),
            HeaderForm::Other(name) => (name.clone(), credential.to_owned()),
        };
        if credential.is_empty() || credential.trim() != credential {
            return None;
        }
        let mut value = HeaderValue::from_str(&Zeroizing::new(value)).ok()?;
        value.set_sensitive(true);
        fields.insert(name, value);
        Some(())
    }
}

fn check_name(name: &str) -> Result<String, ModelUpstreamError> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    match (1..=64).contains(&name.len()) && name.chars().all(is_inner) {
        true => Ok(name.to_owned()),
        false => Err(ModelUpstreamError::Name(name.chars().take(64).collect())),
    }
}

fn check_url(name: &str, text: &str) -> Result<Url, ModelUpstreamError> {
    let url = Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    url.ok_or_else(|| ModelUpstreamError::BaseUrl(name.to_owned()))
}
