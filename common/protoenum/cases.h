// A case for a switch without a default over an enumeration of a protobuf message. A value that is
// missing in such a switch is a compile error. This macro covers the two enumerators of the
// generated type that are not values.
//
//   switch (precision) {
//     case v1::JobSpec::FLOAT16: ...
//     MUSTER_CASE_NO_VALUE_OF(v1::JobSpec_Precision, JobSpec_Precision)
//       break;
//   }
#ifndef MUSTER_COMMON_PROTOENUM_CASES_H_
#define MUSTER_COMMON_PROTOENUM_CASES_H_

// type: the generated type with its namespace; name: the type without its namespace.
#define MUSTER_CASE_NO_VALUE_OF(type, name)          \
  case type##_##name##_INT_MIN_SENTINEL_DO_NOT_USE_: \
  case type##_##name##_INT_MAX_SENTINEL_DO_NOT_USE_:

#endif  // MUSTER_COMMON_PROTOENUM_CASES_H_
