//! `register` and `unregister`: the group agrees on its memory, or on none.
//!
//! What can fail on this shard alone fails before anything is registered, and is told to the other
//! shards, whose call ends with the reason. Two failures show only once all shards have registered.
//! The layouts may not fit together: all shards see that and take the registration back. Or this
//! shard cannot fetch the others' layouts: then it leaves the group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weightcast_plan::{Catalog, Layout, LayoutError};
use weightcast_protocol::message::{Answer, Call, Sibling};
use weightcast_protocol::{CallError, ContentDigest, Selector};
use weightcast_transport::{ExportId, Region};

use super::{LEAVE, ShardHandle, left, unexpected};
use crate::client::memory::layout_source::LayoutSource;
use crate::client::memory::registration::{RegisteredShard, union};
use crate::client::memory::reservations::{Reservation, ReservedMemory};
use crate::client::reading::fetch_layouts;
use crate::config::Replica;
use crate::error::Error;
use crate::manifest;
use crate::transform::Transformed;

impl ShardHandle {
    /// Declares this shard's memory: `regions[i]` is buffer `i` of the layout.
    ///
    /// If it fails on one shard it fails on all, with [`CallError::LayoutMismatch`] that names the
    /// shard and its reason; nothing is registered then, and all may call it again.
    ///
    /// # Errors
    /// Regions and buffers differ in size; shards of the group disagree about a tensor; a name is
    /// not in the version that an open layout is looked up in. If the server cannot be reached for
    /// the other shards' layouts once it has registered them, the handle is closed.
    pub fn register(
        &self,
        layout: LayoutSource,
        regions: Vec<Region>,
        deadline: Duration,
    ) -> Result<(), Error> {
        self.register_memory(layout, regions, None, Instant::now() + deadline)
    }

    /// [`ShardHandle::register`], of memory that may be a representation of other memory.
    pub(super) fn register_memory(
        &self,
        layout: LayoutSource,
        regions: Vec<Region>,
        transformed: Option<Transformed>,
        until: Instant,
    ) -> Result<(), Error> {
        // A closed handle has no control thread, which drives all that goes over the network.
        if self.own()?.thread.lock().expect("no panic while held").is_none() {
            return Err(Error::misuse("the handle is closed; open it again"));
        }
        let described = match lacks_shapes(&layout) {
            true => Some(self.describe(until)?),
            false => None,
        };
        let source = transformed.as_ref().map(Transformed::source);
        let resolved = self.resolve(layout, described, (&regions, source), until);
        let (layout, reservation) = resolved.map_err(|error| self.decline(error, until))?;
        let export = ExportId::random();
        let (layouts, siblings) = self.agree(&layout, export, until)?;
        let registered = self.registration(&layouts, &siblings, regions, transformed, until)?;
        let own = self.own()?;
        own.shared.register(registered, export);
        own.shared.push.registered(layouts);
        *own.reservation.lock().expect("no panic while held") = Some(Arc::new(reservation));
        Ok(())
    }

    /// The logical tensors of the newest version, by name; waits until there is one. A call of the
    /// group, for callers that need the published names to derive a layout from an engine.
    pub fn catalog(&self, deadline: Duration) -> Result<Catalog, Error> {
        let until = Instant::now() + deadline;
        let names = self.describe(until)?;
        union(&self.layouts(&names, until)?)
    }

    /// Takes the registration back and lets go of the memory.
    pub fn unregister(&self, deadline: Duration) -> Result<(), Error> {
        self.call(Call::Unregister, deadline)?;
        let own = self.own()?;
        own.shared.release();
        own.reservation.lock().expect("no panic while held").take();
        Ok(())
    }

    /// The layouts of the newest version; waits until there is one.
    fn describe(&self, until: Instant) -> Result<Vec<ContentDigest>, Error> {
        let call = Call::Describe { selector: Selector::Latest };
        match self.call(call, left(until))?.0 {
            Answer::Described { layouts, .. } => Ok(layouts.to_vec()),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes the register call. If other shards look up shapes first, the call ends with the
    /// described layouts on all shards, and all make it again. The layout is stored again each
    /// time: the server may have let go of it during a long wait.
    fn agree(
        &self,
        layout: &Layout,
        export: ExportId,
        until: Instant,
    ) -> Result<(Vec<ContentDigest>, Arc<[Sibling]>), Error> {
        let (encoded, bytes) = (manifest::encode(layout), layout.bytes());
        let export = weightcast_protocol::ExportId(export.0);
        loop {
            let stored = self.own()?.connection.put_manifest(encoded.clone());
            let layout = self.online(until, stored).map_err(|error| self.decline(error, until))?;
            let call = Call::Register { layout, export, bytes };
            match self.call(call, left(until))?.0 {
                Answer::Registered { layouts, siblings } => {
                    return Ok((layouts.to_vec(), siblings));
                }
                Answer::Described { .. } => {}
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// The work of this shard alone: makes its layout, checks the layout and the memory, and
    /// reserves the memory. `source` is the memory that `regions` represent, if they are a
    /// representation.
    fn resolve(
        &self,
        layout: LayoutSource,
        described: Option<Vec<ContentDigest>>,
        (regions, source): (&[Region], Option<(&Layout, &[Region])>),
        until: Instant,
    ) -> Result<(Layout, Reservation), Error> {
        let layout = match (layout, described) {
            (LayoutSource::Known(layout), _) => layout,
            (LayoutSource::Open(builder), None) => builder.build()?,
            (LayoutSource::Open(builder), Some(names)) => {
                builder.resolve(&union(&self.layouts(&names, until)?)?)?
            }
        };
        check_regions(&layout, regions)?;
        let reservation = self.reserve(source.unwrap_or((&layout, regions)))?;
        Ok((layout, reservation))
    }

    /// Reserves the memory against the other handles of this process.
    fn reserve(&self, (layout, regions): (&Layout, &[Region])) -> Result<Reservation, Error> {
        let own = self.own()?;
        let memory = ReservedMemory::new(layout, regions);
        memory.check()?;
        // What is read-only in part cannot be filled at all.
        let writable = regions.iter().all(|region| region.is_writable() || region.is_empty());
        own.holder.reserve(memory, own.fills && writable)
    }

    /// What the group has registered, seen from this shard.
    fn registration(
        &self,
        layouts: &[ContentDigest],
        siblings: &[Sibling],
        regions: Vec<Region>,
        transformed: Option<Transformed>,
        until: Instant,
    ) -> Result<RegisteredShard, Error> {
        let layouts = match self.layouts(layouts, until) {
            Ok(layouts) => layouts,
            Err(error) => {
                // The other shards may have the layouts and go on; this shard cannot.
                self.close(LEAVE);
                return Err(error);
            }
        };
        let shard = self.replica.shard as usize;
        let joined = transformed.as_ref().map_or(Ok(()), |t| t.join(&layouts));
        let made = joined.and_then(|()| RegisteredShard::new(&layouts, shard, regions));
        let made = made.and_then(|made| match made.lacking(&layouts) {
            None => Ok(made),
            Some(what) => Err(self.incomplete(&what)),
        });
        // Nobody fills a trainer's memory but the trainer.
        let siblings = if self.own()?.fills { siblings } else { &[] };
        let made = made.map(|made| made.beside(&layouts, self.replica.shard, siblings));
        made.map(|made| made.transformed(transformed)).inspect_err(|_| {
            // Every shard finds the same, from the same layouts: all take the registration back.
            if self.call(Call::Unregister, left(until).max(LEAVE)).is_err() {
                self.close(LEAVE);
            }
        })
    }

    /// The shards do not make a whole replica together.
    fn incomplete(&self, what: &str) -> Error {
        let Replica { name, num_shards, .. } = &self.replica;
        Error::Call(CallError::LayoutMismatch {
            replica: name.clone(),
            detail: format!(
                "none of its {num_shards} shards holds {what}: if more ranks hold the model together, \
                 num_shards of weightcast.Replica is their number, with one name for all of them; else \
                 register what is missing, or leave the tensor out on all shards"
            ),
        })
    }

    fn layouts(&self, names: &[ContentDigest], until: Instant) -> Result<Vec<Arc<Layout>>, Error> {
        let own = self.own()?;
        self.online(until, fetch_layouts(&own.connection, &own.shared, names))
    }

    /// Waits for the server outside the session, no longer than `until`.
    fn online<T>(
        &self,
        until: Instant,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let request = async { tokio::time::timeout(left(until), request).await };
        self.own()?.runtime.block_on(request).unwrap_or_else(|_| {
            let reason = "it did not answer before the deadline".to_owned();
            Err(Error::Call(CallError::ServerUnreachable { server: self.server.clone(), reason }))
        })
    }

    /// Tells the other shards that this one does not make the call that they make, and why; returns
    /// the error that it fails with here: [`CallError::Misuse`].
    pub fn refuse(&self, reason: impl Into<String>, deadline: Duration) -> Error {
        self.decline(Error::misuse(reason), Instant::now() + deadline)
    }

    /// Tells the other shards why this one does not make the call that they make, so that theirs
    /// ends too; returns what this shard's call fails with.
    pub(super) fn decline(&self, error: Error, until: Instant) -> Error {
        if self.replica.num_shards == 1 {
            return error;
        }
        match self.call(Call::Decline { detail: error.to_string() }, left(until)) {
            Err(Error::Interrupted) => Error::Interrupted,
            _ => error,
        }
    }
}

/// Whether shapes have to be looked up in a published version.
fn lacks_shapes(layout: &LayoutSource) -> bool {
    match layout {
        LayoutSource::Known(_) => false,
        LayoutSource::Open(builder) => matches!(builder.build(), Err(LayoutError::NoShape { .. })),
    }
}

pub(super) fn check_regions(layout: &Layout, regions: &[Region]) -> Result<(), Error> {
    let sizes = layout.buffers();
    if sizes.len() != regions.len() {
        return Err(Error::misuse(format!(
            "the layout has {} buffers, {} regions were given",
            sizes.len(),
            regions.len()
        )));
    }
    for (index, (size, region)) in sizes.iter().zip(regions).enumerate() {
        if *size != region.len() as u64 {
            return Err(Error::misuse(format!(
                "buffer {index} has {size} bytes in the layout and {} in memory",
                region.len()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
