//! An honest owner of memory that lets others write into it: a data port, and grants that it opens and
//! closes as its standard input says. Answers each command by one JSON line.
//!
//! `weightcast-attacks` starts it, and attacks its grants.

use std::io::{self, BufRead, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use weightcast::transport::{Auth, DataServer, GrantId, GrantTerms, Region, Secret, WriteGrant};

/// Bytes of the memory, and those of them that a grant is over.
const MEMORY_BYTES: usize = 64 << 10;
const GRANTED: std::ops::Range<usize> = 16 << 10..24 << 10;

struct Owner {
    server: DataServer,
    memory: Region,
}

fn main() -> Result<()> {
    let token = std::env::args().nth(1).context("a token file")?;
    let token = std::fs::read_to_string(token).context("read the token file")?;
    let auth = Auth::with_token(Secret::new(token.trim()));
    let server = DataServer::bind(([127, 0, 0, 1], 0).into(), auth)?;
    let memory = Region::allocate(MEMORY_BYTES)?;
    let owner = Owner { server, memory };
    say(&json!({"ok": true, "data_address": owner.server.addr().to_string()}))?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let reply = owner.obey(&words);
        say(&reply.unwrap_or_else(|error| json!({"ok": false, "error": format!("{error:#}")})))?;
    }
    Ok(())
}

impl Owner {
    fn obey(&self, words: &[&str]) -> Result<Value> {
        let exports = self.server.exports();
        match *words {
            ["grant", generation, ms] => self.grant(generation, ms, None),
            ["grant", generation, ms, writer] => self.grant(generation, ms, Some(writer)),
            ["close", id] => {
                let closed = exports.close_grant(GrantId(id.parse()?));
                Ok(json!({"ok": closed}))
            }
            ["serve"] => {
                exports.expose(1, vec![self.memory.clone()]);
                Ok(json!({"ok": true}))
            }
            // How many bytes have changed since the last time that they were looked at.
            ["changed"] => {
                let bytes = self.memory.to_vec();
                let count = |range: std::ops::Range<usize>| {
                    bytes[range].iter().filter(|byte| **byte != 0).count()
                };
                let granted = count(GRANTED);
                let beside = count(0..MEMORY_BYTES) - granted;
                self.memory.write_at(0, &vec![0; MEMORY_BYTES])?;
                Ok(json!({"ok": true, "granted": granted, "beside": beside}))
            }
            _ => bail!("no such command: {words:?}"),
        }
    }

    fn grant(&self, generation: &str, ms: &str, writer: Option<&str>) -> Result<Value> {
        let part = self.memory.part(GRANTED.start, GRANTED.len())?;
        let terms = GrantTerms {
            generation: generation.parse()?,
            regions: vec![part],
            writer: writer.map(str::parse).transpose()?,
            valid_for: Duration::from_millis(ms.parse()?),
        };
        let WriteGrant { id, secret, .. } = self.server.exports().open_grant(terms)?;
        Ok(json!({"ok": true, "id": id.0, "secret": secret.expose()}))
    }
}

fn say(reply: &Value) -> Result<()> {
    println!("{reply}");
    io::stdout().flush()?;
    Ok(())
}
