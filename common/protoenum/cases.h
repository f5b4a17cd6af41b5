// A switch over an enumeration of a protobuf message, without a default: a value that is added to
// the enumeration and not to the switch does not compile then. The generated type has two
// enumerators that stand for no value; this is their case.
//
//   switch (precision) {
//     case v1::JobSpec::FLOAT16: ...
//     MUSTER_CASE_NO_VALUE_OF(v1::JobSpec_Precision, JobSpec_Precision)
//       break;
//   }
#ifndef MUSTER_COMMON_PROTOENUM_CASES_H_
#define MUSTER_COMMON_PROTOENUM_CASES_H_

// type: the generated type with its namespace; name: the same without.
#define MUSTER_CASE_NO_VALUE_OF(type, name)          \
  case type##_##name##_INT_MIN_SENTINEL_DO_NOT_USE_: \
  case type##_##name##_INT_MAX_SENTINEL_DO_NOT_USE_:

#endif  // MUSTER_COMMON_PROTOENUM_CASES_H_
