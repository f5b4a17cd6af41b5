// gRPC and protobuf come from Debian and are not instrumented: what they synchronise by atomics is invisible
// to ThreadSanitizer, so what happens inside them is left out.
extern "C" const char* __tsan_default_suppressions();

extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libprotobuf.so\n"
         "called_from_lib:libupb.so\n"
         // absl::Status counts its references in the library, where ThreadSanitizer does not see it.
         "called_from_lib:libabsl_status.so\n"
         "called_from_lib:libabsl_strings.so\n"
         "called_from_lib:libabsl_time.so\n"
         "called_from_lib:libabsl_cord.so\n"
         "race:absl::debian3::Status::UnrefNonInlined\n"
         "race:absl::debian3::status_internal::Payload\n"
         "race:^grpc::\n"
         "race:libgrpc\n";
}
