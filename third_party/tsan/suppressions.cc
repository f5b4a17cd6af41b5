// Suppressions for Debian's libraries, which are not instrumented. ThreadSanitizer does not see the
// order that these libraries make by atomics, so accesses within the libraries are left out. The
// files absl_mutex.cc, absl_status.cc and grpc_order.cc add the order that the libraries make for
// their users. Each line names a library or a single function. A line such as "race:^grpc::" would
// match every frame of a stack, and so hide every race below a callback.
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
         // gRPC passes a session of OpenSSL from thread to thread.
         "called_from_lib:libssl.so\n"
         "called_from_lib:libcrypto.so\n"
         // LibTorch is not instrumented, either. It cannot be left out as a whole library, because
         // inline code of its headers unlocks mutexes that the library has locked. ThreadSanitizer
         // does not see the order that the network gives to Gloo's messages (for reads see
         // gloo_read.cc). So ThreadSanitizer does not find a tensor that is changed while Gloo
         // sends or reads.
         "race:c10d::FlightRecorder\n"
         "race:gloo::transport::tcp::Pair::write\n"
         "race:gloo::transport::tcp::UnboundBuffer\n"
         "deadlock:c10::monitor::\n"
         // The lock-order graph of absl::Mutex, behind a spin lock of its own.
         "called_from_lib:libabsl_graphcycles_internal.so\n"
         // The library, which is left out, locks a map's mutex, and inline code unlocks the mutex.
         "race:google::protobuf::internal::MapField\n"
         "mutex:google::protobuf::internal::MapField\n";
}
