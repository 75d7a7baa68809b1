//! What the doctor asks of a server. A refusal tells as much as an answer, so it is returned as it is.

use tonic::Status;
use weightcast_protocol::Term;
use weightcast_protocol::server::Preview;

use super::ServerConnection;
use crate::convert::{previewed, term_proof};
use crate::serve::DialNonce;
use crate::wire::{DialBackReply, DialBackRequest, PreviewRequest, ProbeRequest};

impl ServerConnection {
    /// The term that the server acts in, which is told of no other; `None`: it is passive.
    pub(crate) async fn term(&self) -> Result<Option<Term>, Status> {
        let reply = self.current().1.probe(ProbeRequest { proof: None }).await?;
        let proof = reply.proof.map(term_proof).transpose();
        Ok(proof.map_err(|malformed| Status::data_loss(malformed.to_string()))?.map(|of| of.term))
    }

    /// What the choice of a source would come to; `None`: one of the two is not there, or the source
    /// holds nothing that readers may be sent to.
    pub(crate) async fn preview(
        &self,
        model: &str,
        reader: &str,
        source: &str,
    ) -> Result<Option<Preview>, Status> {
        let [model, reader, source] = [model, reader, source].map(str::to_owned);
        let reply = self.current().1.preview(PreviewRequest { model, reader, source }).await?;
        let told = reply.preview.map(previewed).transpose();
        told.map_err(|malformed| Status::data_loss(malformed.to_string()))
    }

    /// Has the server connect to a port of this host, and say there that it did.
    pub(crate) async fn dial_back(
        &self,
        port: u16,
        nonce: DialNonce,
    ) -> Result<DialBackReply, Status> {
        let request = DialBackRequest { port: port.into(), nonce: nonce.to_vec() };
        self.current().1.dial_back(request).await
    }
}
