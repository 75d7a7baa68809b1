//! The models by name, and the high water of forgotten models.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

use crate::server::stores::model::Model;
use crate::server::stores::store::Store;
use crate::{Epoch, Revision};

/// All models with groups, and models that became vacant and are still to be forgotten.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Models {
    models: Store<String, Model>,
    /// Models whose last group has left.
    pub(in crate::server) vacant: BTreeSet<String>,
    /// The highest numbers of models that were forgotten in this term.
    pub(in crate::server) high_water: Option<HighWater>,
}

/// The newest run and revision of all models that were forgotten in this term.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::server) struct HighWater {
    pub(in crate::server) epoch: Epoch,
    pub(in crate::server) revision: Revision,
}

impl Models {
    /// A group has left a model. The last group leaves the model vacant.
    pub(in crate::server) fn leave(&mut self, name: String) {
        let model = self.models.of_mut(&name);
        model.groups -= 1;
        if model.groups == 0 {
            self.vacant.insert(name);
        }
    }
}

impl Deref for Models {
    type Target = Store<String, Model>;
    fn deref(&self) -> &Self::Target {
        &self.models
    }
}

impl DerefMut for Models {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.models
    }
}
