// For a switch without a default over an enumeration of a protobuf message: then a value that is
// missing in the switch is a compile error. The generated type has two enumerators that are not
// values; this macro is the case for them.
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
