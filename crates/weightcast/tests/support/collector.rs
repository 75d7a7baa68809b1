//! An OpenTelemetry collector in this process, made of OTLP as its authors write it.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::mpsc;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as OtlpValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::Value;
use tonic::{Request, Response, Status};

/// A span that has come.
#[derive(Clone, Debug)]
pub(crate) struct SpanSeen {
    pub(crate) resource: BTreeMap<String, Value>,
    pub(crate) attributes: BTreeMap<String, Value>,
    pub(crate) span: Span,
}

struct Collecting(mpsc::Sender<SpanSeen>);

#[tonic::async_trait]
impl TraceService for Collecting {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for list in request.into_inner().resource_spans {
            let resource = values(list.resource.unwrap().attributes);
            for span in list.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let attributes = values(span.attributes.clone());
                let seen = SpanSeen { resource: resource.clone(), attributes, span };
                self.0.send(seen).map_err(|_| Status::unavailable("the test is over"))?;
            }
        }
        Ok(Response::new(ExportTraceServiceResponse { partial_success: None }))
    }
}

/// Collects what comes to this port, until the test is over.
pub(crate) fn collect(listener: TcpListener) -> mpsc::Receiver<SpanSeen> {
    let (seen, spans) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
            let service = TraceServiceServer::new(Collecting(seen));
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(incoming).await.unwrap();
        });
    });
    spans
}

fn values(attributes: Vec<KeyValue>) -> BTreeMap<String, Value> {
    let value = |value: Option<AnyValue>| match value.unwrap().value.unwrap() {
        OtlpValue::StringValue(text) => Value::from(text),
        OtlpValue::BoolValue(is) => is.into(),
        OtlpValue::IntValue(number) => number.into(),
        OtlpValue::DoubleValue(number) => number.into(),
        other => panic!("{other:?}"),
    };
    attributes.into_iter().map(|KeyValue { key, value: of, .. }| (key, value(of))).collect()
}
