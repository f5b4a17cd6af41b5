// Libraries from Debian are not instrumented: what they put in order by atomics is invisible to
// ThreadSanitizer, so what they do themselves is left out (absl_mutex.cc, absl_status.cc and
// grpc_order.cc say what they put in order for others). Each line names a library or a single
// function. A line such as "race:^grpc::" would match every frame of a stack, and so hide every
// race below a callback.
extern "C" const char* __tsan_default_suppressions();

extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libprotobuf.so\n"
         "called_from_lib:libupb.so\n"
         "called_from_lib:libabsl_status.so\n"
         "called_from_lib:libabsl_strings.so\n"
         "called_from_lib:libabsl_time.so\n"
         "called_from_lib:libabsl_time_zone.so\n"
         "called_from_lib:libabsl_cord.so\n"
         // gRPC hands a session of OpenSSL from thread to thread.
         "called_from_lib:libssl.so\n"
         "called_from_lib:libcrypto.so\n"
         // LibTorch comes without instrumentation, too. As a whole library it cannot be left out:
         // its headers unlock in our code what the library has locked. The network puts in order
         // what Gloo sends, which ThreadSanitizer does not see (nor what it reads: gloo_read.cc).
         // So it does not find a tensor that is changed while Gloo sends or reads it.
         "race:c10d::FlightRecorder\n"
         "race:gloo::transport::tcp::Pair::write\n"
         "race:gloo::transport::tcp::UnboundBuffer\n"
         "deadlock:c10::monitor::\n"
         // The lock-order graph of absl::Mutex, behind a spin lock of its own.
         "called_from_lib:libabsl_graphcycles_internal.so\n"
         // A map's mutex is locked in the library, which is left out, and unlocked in inline code.
         "race:google::protobuf::internal::MapField\n"
         "mutex:google::protobuf::internal::MapField\n";
}
