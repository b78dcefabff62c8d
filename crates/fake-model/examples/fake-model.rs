//! The fake model alone, for trying an agent by hand: `cargo run --example fake-model -- PATH TEXT`. Where
//! `FAKE_MODEL_REQUESTS` names a directory, the bodies of what it was asked are written there.
#![expect(clippy::print_stdout, reason = "this is a program for people")]

use bulkhead_fake_model::{FakeModel, Script};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let path = args
        .next()
        .unwrap_or_else(|| "/tmp/greeting.txt".to_owned());
    let text = args.next().unwrap_or_else(|| "hello\n".to_owned());
    let model = FakeModel::start(Script::Edit { path, text }).await?;
    println!("http://{}", model.address());
    let mut told = 0;
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        for seen in model.seen().into_iter().skip(told) {
            told += 1;
            println!("{} {} bytes", seen.path, seen.body.len());
            if let Some(dir) = std::env::var_os("FAKE_MODEL_REQUESTS") {
                let file = std::path::Path::new(&dir).join(format!("{told}.json"));
                std::fs::write(file, seen.body)?;
            }
        }
    }
}
