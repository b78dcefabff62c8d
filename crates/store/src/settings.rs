//! Small settings of the operator, as JSON by name.

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    db::Connection,
    error::{Doing, Result, corrupt, encode},
    store::Store,
};

impl Store {
    pub async fn setting<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let mut connection = self
            .db()
            .read()
            .acquire()
            .await
            .doing("reading a setting")?;
        read(&mut connection, name).await
    }

    pub async fn set_setting<T: Serialize>(
        &self,
        name: &str,
        value: &T,
        now_ms: i64,
    ) -> Result<()> {
        let mut connection = self
            .db()
            .write()
            .acquire()
            .await
            .doing("writing a setting")?;
        write(&mut connection, name, value, now_ms).await
    }
}

pub(crate) async fn read<T: DeserializeOwned>(
    connection: &mut Connection,
    name: &str,
) -> Result<Option<T>> {
    let text: Option<String> = sqlx::query_scalar("SELECT value FROM settings WHERE name = $1")
        .bind(name)
        .fetch_optional(connection)
        .await
        .doing("reading a setting")?;
    text.map(|text| serde_json::from_str(&text).map_err(corrupt("a setting")))
        .transpose()
}

pub(crate) async fn write<T: Serialize>(
    connection: &mut Connection,
    name: &str,
    value: &T,
    now_ms: i64,
) -> Result<()> {
    let text = serde_json::to_string(value).map_err(encode("a setting"))?;
    sqlx::query(
        "INSERT INTO settings (name, value, updated_at) VALUES ($1, $2, $3) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at",
    )
    .bind(name)
    .bind(text)
    .bind(now_ms)
    .execute(connection)
    .await
    .doing("writing a setting")?;
    Ok(())
}
