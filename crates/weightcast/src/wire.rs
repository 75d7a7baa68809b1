//! The messages of `proto/weightcast.proto`.

tonic::include_proto!("weightcast.v1");
