//! The messages of `proto/otlp.proto`.

tonic::include_proto!("opentelemetry.proto.collector.trace.v1");
