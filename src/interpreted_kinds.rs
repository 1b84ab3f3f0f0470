//! The kinds that Karmada interprets without any customization: whether it knows when an object is unhealthy, and which
//! fields of the status it reflects. The stage `lint` warns about state rules for other kinds and fields.

use crate::settings::InterpretedKind;

/// All fields of a status.
const WHOLE: &[&str] = &[];

/// apiVersion, kind, whether some version of Karmada interprets its health, and the fields of the status that some
/// version reflects. Source: Karmada v1.12 to v1.19, `pkg/resourceinterpreter/default`; a test compares it with
/// `testdata/facts/interpreted-kinds.json`.
pub const INTERPRETED: &[(&str, &str, bool, &[&str])] = &[
    ("apps.kruise.io/v1alpha1", "AdvancedCronJob", false, WHOLE),
    (
        "apps.kruise.io/v1alpha1",
        "BroadcastJob",
        true,
        &["active", "completionTime", "conditions", "desired", "failed", "phase", "startTime", "succeeded"],
    ),
    (
        "apps.kruise.io/v1alpha1",
        "CloneSet",
        true,
        &[
            "availableReplicas",
            "currentRevision",
            "expectedUpdatedReplicas",
            "generation",
            "labelSelector",
            "observedGeneration",
            "readyReplicas",
            "replicas",
            "resourceTemplateGeneration",
            "updateRevision",
            "updatedReadyReplicas",
            "updatedReplicas",
        ],
    ),
    (
        "apps.kruise.io/v1alpha1",
        "DaemonSet",
        true,
        &[
            "currentNumberScheduled",
            "daemonSetHash",
            "desiredNumberScheduled",
            "generation",
            "numberAvailable",
            "numberMisscheduled",
            "numberReady",
            "numberUnavailable",
            "observedGeneration",
            "resourceTemplateGeneration",
            "updatedNumberScheduled",
        ],
    ),
    ("apps.kruise.io/v1alpha1", "SidecarSet", true, &["matchedPods", "readyPods", "updatedPods"]),
    (
        "apps.kruise.io/v1alpha1",
        "UnitedDeployment",
        true,
        &[
            "availableReplicas",
            "conditions",
            "generation",
            "observedGeneration",
            "readyReplicas",
            "replicas",
            "resourceTemplateGeneration",
            "unavailableReplicas",
            "updatedReplicas",
        ],
    ),
    (
        "apps.kruise.io/v1beta1",
        "StatefulSet",
        true,
        &[
            "availableReplicas",
            "currentReplicas",
            "currentRevision",
            "generation",
            "observedGeneration",
            "readyReplicas",
            "replicas",
            "resourceTemplateGeneration",
            "updateRevision",
            "updatedReadyReplicas",
            "updatedReplicas",
        ],
    ),
    (
        "apps/v1",
        "DaemonSet",
        true,
        &[
            "currentNumberScheduled",
            "desiredNumberScheduled",
            "generation",
            "numberAvailable",
            "numberMisscheduled",
            "numberReady",
            "numberUnavailable",
            "observedGeneration",
            "resourceTemplateGeneration",
            "updatedNumberScheduled",
        ],
    ),
    (
        "apps/v1",
        "Deployment",
        true,
        &[
            "availableReplicas",
            "generation",
            "observedGeneration",
            "readyReplicas",
            "replicas",
            "resourceTemplateGeneration",
            "unavailableReplicas",
            "updatedReplicas",
        ],
    ),
    ("apps/v1", "ReplicaSet", true, WHOLE),
    (
        "apps/v1",
        "StatefulSet",
        true,
        &[
            "availableReplicas",
            "currentReplicas",
            "generation",
            "readyReplicas",
            "replicas",
            "resourceTemplateGeneration",
            "updatedReplicas",
        ],
    ),
    ("argoproj.io/v1alpha1", "Workflow", true, WHOLE),
    ("autoscaling/v2", "HorizontalPodAutoscaler", false, &["currentReplicas", "desiredReplicas"]),
    (
        "batch.volcano.sh/v1alpha1",
        "Job",
        true,
        &[
            "conditions",
            "controlledResources",
            "failed",
            "minAvailable",
            "pending",
            "retryCount",
            "running",
            "runningDuration",
            "state",
            "succeeded",
            "taskStatusCount",
            "terminating",
            "unknown",
            "version",
        ],
    ),
    ("batch/v1", "CronJob", false, WHOLE),
    ("batch/v1", "Job", false, &["active", "completionTime", "conditions", "failed", "startTime", "succeeded"]),
    (
        "flink.apache.org/v1beta1",
        "FlinkDeployment",
        true,
        &[
            "clusterInfo",
            "error",
            "jobManagerDeploymentStatus",
            "jobStatus",
            "lifecycleState",
            "observedGeneration",
            "reconciliationStatus",
            "taskManager",
        ],
    ),
    (
        "helm.toolkit.fluxcd.io/v2beta1",
        "HelmRelease",
        true,
        &[
            "conditions",
            "failures",
            "generation",
            "helmChart",
            "installFailures",
            "lastAppliedRevision",
            "lastAttemptedRevision",
            "lastAttemptedValuesChecksum",
            "lastReleaseRevision",
            "observedGeneration",
            "resourceTemplateGeneration",
            "upgradeFailures",
        ],
    ),
    ("kubeflow.org/v1", "Notebook", true, &["conditions", "containerState", "readyReplicas"]),
    ("kubeflow.org/v1", "PyTorchJob", true, WHOLE),
    ("kubeflow.org/v1", "TFJob", true, WHOLE),
    (
        "kubeflow.org/v2beta1",
        "MPIJob",
        true,
        &["completionTime", "conditions", "lastReconcileTime", "replicaStatuses", "startTime"],
    ),
    (
        "kustomize.toolkit.fluxcd.io/v1",
        "Kustomization",
        true,
        &[
            "conditions",
            "generation",
            "lastAppliedRevision",
            "lastAttemptedRevision",
            "observedGeneration",
            "resourceTemplateGeneration",
        ],
    ),
    ("kyverno.io/v1", "ClusterPolicy", true, &["autogen", "conditions", "ready", "rulecount"]),
    ("kyverno.io/v1", "Policy", true, &["autogen", "conditions", "ready", "rulecount"]),
    ("networking.k8s.io/v1", "Ingress", true, WHOLE),
    (
        "policy/v1",
        "PodDisruptionBudget",
        true,
        &["currentHealthy", "desiredHealthy", "disruptedPods", "disruptionsAllowed", "expectedPods"],
    ),
    ("ray.io/v1", "RayCluster", true, WHOLE),
    ("ray.io/v1", "RayJob", true, WHOLE),
    ("ray.io/v1", "RayService", true, WHOLE),
    (
        "source.toolkit.fluxcd.io/v1",
        "GitRepository",
        true,
        &[
            "artifact",
            "conditions",
            "generation",
            "observedGeneration",
            "observedIgnore",
            "observedRecurseSubmodules",
            "resourceTemplateGeneration",
        ],
    ),
    (
        "source.toolkit.fluxcd.io/v1beta2",
        "Bucket",
        true,
        &[
            "artifact",
            "conditions",
            "generation",
            "observedGeneration",
            "observedIgnore",
            "resourceTemplateGeneration",
            "url",
        ],
    ),
    (
        "source.toolkit.fluxcd.io/v1beta2",
        "HelmChart",
        true,
        &[
            "artifact",
            "conditions",
            "generation",
            "observedChartName",
            "observedSourceArtifactRevision",
            "resourceTemplateGeneration",
            "url",
        ],
    ),
    (
        "source.toolkit.fluxcd.io/v1beta2",
        "HelmRepository",
        true,
        &["artifact", "conditions", "generation", "observedGeneration", "resourceTemplateGeneration", "url"],
    ),
    (
        "source.toolkit.fluxcd.io/v1beta2",
        "OCIRepository",
        true,
        &[
            "artifact",
            "conditions",
            "generation",
            "observedGeneration",
            "observedIgnore",
            "observedLayerSelector",
            "resourceTemplateGeneration",
            "url",
        ],
    ),
    (
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
        true,
        &[
            "applicationState",
            "driverInfo",
            "executionAttempts",
            "executorState",
            "lastSubmissionAttemptTime",
            "sparkApplicationId",
            "submissionAttempts",
            "submissionID",
            "terminationTime",
        ],
    ),
    ("v1", "PersistentVolume", false, WHOLE),
    ("v1", "PersistentVolumeClaim", true, WHOLE),
    ("v1", "Pod", true, WHOLE),
    ("v1", "Service", true, &["loadBalancer"]),
];

/// apiVersion, kind, the file of the customization in `deploy/interpreters` that this project ships for it, and whether
/// that reflects more of the status than Karmada does. A test compares it with the files.
pub const SHIPPED: &[(&str, &str, &str, bool)] = &[
    ("argoproj.io/v1alpha1", "Workflow", "argo-workflow.yaml", false),
    ("postgresql.cnpg.io/v1", "Cluster", "cnpg-cluster.yaml", false),
    ("debezium.io/v1alpha1", "DebeziumServer", "debeziumserver.yaml", true),
    ("elasticsearch.k8s.elastic.co/v1", "Elasticsearch", "elasticsearch.yaml", true),
    ("flink.apache.org/v1beta1", "FlinkBlueGreenDeployment", "flinkbluegreendeployment.yaml", true),
    ("flink.apache.org/v1beta1", "FlinkDeployment", "flinkdeployment.yaml", false),
    ("flink.apache.org/v1beta1", "FlinkSessionJob", "flinksessionjob.yaml", false),
    ("batch/v1", "Job", "job.yaml", true),
    ("kafka.strimzi.io/v1", "KafkaConnect", "kafkaconnect.yaml", true),
    ("kafka.strimzi.io/v1beta2", "KafkaConnect", "kafkaconnect.yaml", true),
    ("serving.knative.dev/v1", "Service", "knative-service.yaml", false),
    ("kubeflow.org/v2beta1", "MPIJob", "mpijob.yaml", true),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaim.yaml", true),
    ("v1", "Pod", "pod.yaml", true),
    ("kubeflow.org/v1", "PyTorchJob", "pytorchjob.yaml", true),
    ("ray.io/v1", "RayCluster", "raycluster.yaml", true),
    ("ray.io/v1", "RayJob", "rayjob.yaml", false),
    ("spark.apache.org/v1", "SparkApplication", "sparkapplication-apache.yaml", false),
    ("spark.apache.org/v1beta1", "SparkApplication", "sparkapplication-apache.yaml", false),
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication", "sparkapplication-kubeflow.yaml", false),
    ("apps/v1", "StatefulSet", "statefulset.yaml", true),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjob.yaml", false),
    ("kubevirt.io/v1", "VirtualMachine", "virtualmachine.yaml", true),
    ("batch.volcano.sh/v1alpha1", "Job", "volcano-job.yaml", true),
    ("acid.zalan.do/v1", "postgresql", "zalando-postgresql.yaml", true),
];

/// The field of the status into which the customizations in `deploy/interpreters` reflect annotations.
pub const REFLECTED_ANNOTATIONS: &str = "reflected";

/// How a kind is interpreted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpretation<'a> {
    /// Whether Karmada notices that an object is unhealthy.
    pub has_health: bool,
    /// The fields of the status that are reflected; `None` for all of them.
    pub reflected: Option<Vec<&'a str>>,
    /// Whether it comes from `lintKinds` in the settings.
    pub is_own: bool,
}

impl<'a> Interpretation<'a> {
    /// How a kind is interpreted: as `lintKinds` says or, where it does not name the kind, by Karmada itself. The
    /// policy can't see the customizations in the cluster.
    pub fn of(api_version: &str, kind: &str, own: &'a [InterpretedKind]) -> Self {
        if let Some(own) = own.iter().find(|own| own.api_version == api_version && own.kind == kind) {
            let reflected = own.reflected.as_ref().map(|fields| fields.iter().map(String::as_str).collect());
            return Self { has_health: true, reflected, is_own: true };
        }
        let known = INTERPRETED.iter().find(|(group, name, ..)| *group == api_version && *name == kind);
        Self {
            // Of other kinds, Karmada reflects the whole status and reports every object as healthy.
            has_health: known.is_some_and(|(_, _, has_health, _)| *has_health),
            reflected: known.map(|(.., fields)| fields.to_vec()).filter(|fields| !fields.is_empty()),
            is_own: false,
        }
    }

    /// Whether that field of the status is reflected. The field for annotations is not one that an operator writes.
    pub fn reflects(&self, field: &str) -> bool {
        (self.is_own || field != REFLECTED_ANNOTATIONS)
            && self.reflected.as_ref().is_none_or(|fields| fields.contains(&field))
    }

    /// Whether the list of reflected fields names this one.
    pub fn names(&self, field: &str) -> bool {
        self.reflected.as_ref().is_some_and(|fields| fields.contains(&field))
    }
}

/// The file in `deploy/interpreters` that interprets the kind's health.
pub fn shipped(api_version: &str, kind: &str) -> Option<&'static str> {
    find_shipped(api_version, kind).map(|(file, _)| file)
}

/// The file in `deploy/interpreters` that reflects more of the kind's status than Karmada does.
pub fn shipped_reflection(api_version: &str, kind: &str) -> Option<&'static str> {
    find_shipped(api_version, kind).filter(|(_, reflects)| *reflects).map(|(file, _)| file)
}

fn find_shipped(api_version: &str, kind: &str) -> Option<(&'static str, bool)> {
    let shipped = SHIPPED.iter().find(|(group, name, ..)| *group == api_version && *name == kind);
    shipped.map(|(_, _, file, reflects)| (*file, *reflects))
}
