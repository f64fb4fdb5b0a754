// Asks the real controller's reconcileAutoscaler about cases: one JSON object a line in, one answer a line out.
// It is compiled in one package with horizontal.go and replica_calculator.go of the module k8s.io/kubernetes (tests/integration/hpa_reference.py).

package podautoscaler

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	autoscalingclient "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	scaleclient "k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/monitor"
	"k8s.io/kubernetes/pkg/controller/util/selectors"
)

type sample struct {
	Value  int64   `json:"value"`
	Age    float64 `json:"age"`
	Window float64 `json:"window"`
}

type reading struct {
	Samples map[string]sample `json:"samples"`
	Values  []int64           `json:"values"`
	Problem string            `json:"problem"`
}

type past struct {
	Age    float64 `json:"age"`
	Number int32   `json:"number"`
}

type question struct {
	HPA             autoscalingv2.HorizontalPodAutoscaler `json:"hpa"`
	Pods            []*v1.Pod                             `json:"pods"`
	Ages            map[string][]float64                  `json:"ages"`
	Spec            int32                                 `json:"spec"`
	Status          int32                                 `json:"status"`
	Selector        string                                `json:"selector"`
	Readings        map[string]reading                    `json:"readings"`
	Recommendations []past                                `json:"recommendations"`
	Ups             []past                                `json:"ups"`
	Downs           []past                                `json:"downs"`
	Gates           string                                `json:"gates"`
	Tolerance       float64                               `json:"tolerance"`
	Downscale       float64                               `json:"downscale"`
	CPU             float64                               `json:"cpu"`
	Readiness       float64                               `json:"readiness"`
}

type answer struct {
	Scale  int32                                        `json:"scale"`
	Status *autoscalingv2.HorizontalPodAutoscalerStatus `json:"status"`
	Error  string                                       `json:"error"`
}

func seconds(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }

// ---- what the controller asks

type scales struct {
	scaleclient.ScalesGetter
	scaleclient.ScaleInterface
	now autoscalingv1.Scale
}

func (s *scales) Scales(string) scaleclient.ScaleInterface { return s }

func (s *scales) Get(context.Context, schema.GroupResource, string, metav1.GetOptions) (*autoscalingv1.Scale, error) {
	return s.now.DeepCopy(), nil
}

func (s *scales) Update(_ context.Context, _ schema.GroupResource, scale *autoscalingv1.Scale, _ metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
	s.now = *scale.DeepCopy()
	return scale, nil
}

type autoscalers struct {
	autoscalingclient.HorizontalPodAutoscalerInterface
	status *autoscalingv2.HorizontalPodAutoscalerStatus
}

func (a *autoscalers) HorizontalPodAutoscalers(string) autoscalingclient.HorizontalPodAutoscalerInterface {
	return a
}

func (a *autoscalers) UpdateStatus(_ context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, _ metav1.UpdateOptions) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	a.status = hpa.Status.DeepCopy()
	return hpa, nil
}

type mapper struct{ apimeta.RESTMapper }

func (mapper) RESTMappings(schema.GroupKind, ...string) ([]*apimeta.RESTMapping, error) {
	return []*apimeta.RESTMapping{{Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}}}, nil
}

type metrics struct {
	readings map[string]reading
	now      time.Time
}

func (m *metrics) pods(name string) (metricsclient.PodMetricsInfo, time.Time, error) {
	found := m.readings[name]
	if found.Problem != "" {
		return nil, time.Time{}, errors.New(found.Problem)
	}
	info := metricsclient.PodMetricsInfo{}
	for pod, one := range found.Samples {
		info[pod] = metricsclient.PodMetric{Timestamp: m.now.Add(-seconds(one.Age)), Window: seconds(one.Window), Value: one.Value}
	}
	return info, m.now, nil
}

func (m *metrics) GetResourceMetric(_ context.Context, resource v1.ResourceName, _ string, _ labels.Selector, container string) (metricsclient.PodMetricsInfo, time.Time, error) {
	if container != "" {
		return m.pods(string(resource) + " of " + container)
	}
	return m.pods(string(resource))
}

func (m *metrics) GetRawMetric(name string, _ string, _ labels.Selector, _ labels.Selector) (metricsclient.PodMetricsInfo, time.Time, error) {
	return m.pods(name)
}

func (m *metrics) GetObjectMetric(name string, _ string, _ *autoscalingv2.CrossVersionObjectReference, _ labels.Selector) (int64, time.Time, error) {
	found := m.readings[name]
	if found.Problem != "" {
		return 0, time.Time{}, errors.New(found.Problem)
	}
	return found.Values[0], m.now, nil
}

func (m *metrics) GetExternalMetric(name string, _ string, _ labels.Selector) ([]int64, time.Time, error) {
	found := m.readings[name]
	if found.Problem != "" {
		return nil, time.Time{}, errors.New(found.Problem)
	}
	return found.Values, m.now, nil
}

// ---- one case

func ask(one question) answer {
	now := time.Now()
	for _, pod := range one.Pods {
		ages := one.Ages[pod.Name]
		if len(ages) > 0 && ages[0] >= 0 {
			started := metav1.NewTime(now.Add(-seconds(ages[0])))
			pod.Status.StartTime = &started
		}
		if len(ages) > 1 {
			for i := range pod.Status.Conditions {
				pod.Status.Conditions[i].LastTransitionTime = metav1.NewTime(now.Add(-seconds(ages[1])))
			}
		}
		if len(ages) > 2 {
			ending := metav1.NewTime(now)
			pod.DeletionTimestamp = &ending
		}
	}
	if one.Gates != "" {
		if err := utilfeature.DefaultMutableFeatureGate.Set(one.Gates); err != nil {
			return answer{Error: err.Error()}
		}
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, pod := range one.Pods {
		if err := indexer.Add(pod); err != nil {
			return answer{Error: err.Error()}
		}
	}
	target := &scales{now: autoscalingv1.Scale{
		Spec:   autoscalingv1.ScaleSpec{Replicas: one.Spec},
		Status: autoscalingv1.ScaleStatus{Replicas: one.Status, Selector: one.Selector},
	}}
	written := &autoscalers{}
	lister := corelisters.NewPodLister(indexer)
	key := one.HPA.Namespace + "/" + one.HPA.Name
	a := &HorizontalController{
		eventRecorder:                record.NewFakeRecorder(100),
		scaleNamespacer:              target,
		hpaNamespacer:                written,
		downscaleStabilisationWindow: seconds(one.Downscale),
		monitor:                      monitor.New(),
		mapper:                       mapper{},
		recommendations:              map[string][]timestampedRecommendation{},
		scaleUpEvents:                map[string][]timestampedScaleEvent{},
		scaleDownEvents:              map[string][]timestampedScaleEvent{},
		hpaSelectors:                 selectors.NewBiMultimap(),
		podLister:                    lister,
	}
	a.hpaSelectors.PutSelector(selectors.Parse(key), labels.Nothing())
	tune(a, &metrics{one.Readings, now}, lister, one)
	for _, p := range one.Recommendations {
		a.recommendations[key] = append(a.recommendations[key], timestampedRecommendation{p.Number, now.Add(-seconds(p.Age))})
	}
	for _, p := range one.Ups {
		a.scaleUpEvents[key] = append(a.scaleUpEvents[key], timestampedScaleEvent{p.Number, now.Add(-seconds(p.Age)), false})
	}
	for _, p := range one.Downs {
		a.scaleDownEvents[key] = append(a.scaleDownEvents[key], timestampedScaleEvent{p.Number, now.Add(-seconds(p.Age)), false})
	}
	err := a.reconcileAutoscaler(context.Background(), &one.HPA, key)
	found := answer{Scale: target.now.Spec.Replicas, Status: written.status}
	if found.Status == nil {
		found.Status = &one.HPA.Status
	}
	if err != nil {
		found.Error = strings.TrimSpace(err.Error())
	}
	return found
}

// Answer answers all cases of standard input.
func Answer() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<26)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var one question
		if err := json.Unmarshal(in.Bytes(), &one); err != nil {
			_ = out.Encode(answer{Error: "not read: " + err.Error()})
			continue
		}
		_ = out.Encode(ask(one))
	}
}
