// Pages of jobs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/service/coordinator_fixture.h"

namespace muster::service {
namespace {

TEST_F(CoordinatorTest, ListsNewestFirstInPages) {
  v1::Job job;
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(Submit(Spec(), id, &job).ok());
  v1::ListJobsRequest request;
  request.set_page_size(2);
  std::vector<std::string> ids;
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse page;
    ASSERT_TRUE(jobs_->ListJobs(&context, request, &page).ok());
    for (const auto& listed : page.jobs()) ids.push_back(listed.id());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(ids, (std::vector<std::string>{"c", "b", "a"}));
  request.set_page_token("nonsense");
  grpc::ClientContext context;
  v1::ListJobsResponse page;
  EXPECT_EQ(jobs_->ListJobs(&context, request, &page).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CoordinatorTest, PagesAreStableWhileJobsComeAndGo) {
  v1::Job job;
  v1::DeleteJobResponse deleted;
  for (const char* id : {"a", "b", "c", "d", "e", "f"}) {
    ASSERT_TRUE(Submit(Spec(), id, &job).ok());
    // All jobs except b and e end.
    if (*id != 'b' && *id != 'e') ASSERT_TRUE(Stop(id, &job).ok());
  }
  v1::ListJobsRequest request;
  request.set_page_size(2);
  const auto page = [&] {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    EXPECT_TRUE(jobs_->ListJobs(&context, request, &response).ok());
    request.set_page_token(response.next_page_token());
    std::string ids;
    for (const auto& listed : response.jobs()) ids += listed.id();
    return ids;
  };
  EXPECT_EQ(page(), "fe");
  // The last job of the page, a job of the next page and a job of the page before are deleted. One
  // job is added.
  ASSERT_TRUE(Stop("e", &job).ok());
  for (const char* id : {"e", "d", "f"}) ASSERT_TRUE(Delete(id, &deleted).ok());
  ASSERT_TRUE(Submit(Spec(), "g", &job).ok());
  EXPECT_EQ(page(), "cb");
  EXPECT_EQ(page(), "a");
  EXPECT_EQ(request.page_token(), "");

  request.add_states(v1::Job::CANCELLED);
  request.set_page_size(1);
  EXPECT_EQ(page(), "c");
  EXPECT_EQ(page(), "a");
  // The last page says so: no empty page comes after it.
  EXPECT_EQ(request.page_token(), "");
  request.add_states(v1::Job::QUEUED);
  request.set_page_size(1000);
  EXPECT_EQ(page(), "gcba");
  request.add_states(v1::Job::STATE_UNSPECIFIED);
  grpc::ClientContext context;
  v1::ListJobsResponse response;
  EXPECT_EQ(jobs_->ListJobs(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CoordinatorTest, APageOfLargeJobsHoldsFewer) {
  v1::Job job;
  v1::JobSpec spec = Spec();
  // A job has about 1 MB: the fifth job exceeds the limit of a page.
  auto* plugin = spec.mutable_model()->mutable_plugin();
  plugin->set_path("/p.so");
  plugin->set_name("p");
  for (int i = 0; i < 250; ++i) {
    (*plugin->mutable_options())[std::to_string(i)] = std::string(4000, 'x');
  }
  for (const char* id : {"a", "b", "c", "d", "e", "f", "g"}) {
    ASSERT_TRUE(Submit(spec, id, &job).ok());
  }
  v1::ListJobsRequest request;
  std::vector<int> pages;
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse page;
    ASSERT_TRUE(jobs_->ListJobs(&context, request, &page).ok());
    pages.push_back(page.jobs_size());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(pages, (std::vector<int>{5, 2}));
}

}  // namespace
}  // namespace muster::service
